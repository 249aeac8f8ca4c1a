-- shared_downgrade.lua: give up some of what a token holds and keep the rest.
--
-- KEYS[1]  lock
-- ARGV[4]  how much to keep. A script that comes late, or again, changes nothing.
--
-- Returns {status, more}: status 1 it holds no more than that now, 0 not held by this
-- token, 2 held on behalf of an owner, others of whom may count on all of it. more as in mutex_release.lua; run this again then.

-- Whatever comes first is an HDEL, see keep.
redis.call('HDEL', KEYS[1], 'none')
expire()
if self ~= token then
  return { 2, 0 }
end
local status, excess = held and 1 or 0, held and me.weight - ARGV[4] or 0
if excess > 0 then
  me.weight = me.weight - excess
  holder_write(token, me)
  lower(excess)
end
local more, news = grant()
spread(news)
return { status, more }
