-- lock_renew.lua: let the lease last its whole length again.
--
-- KEYS[1]  lock
-- ARGV[4]  TTL in ms
-- ARGV[5]  what waiters are told of this holder, empty for nothing
--
-- Returns 1 renewed, 2 renewed and somebody waits, 0 not held by this token; 3 for 2, and -1
-- for 0, if there is more to do, see grant in queue.lua.

expire()
if held then
  extend(tonumber(ARGV[4]))
  if ARGV[5] ~= '' and (speaker ~= token or carrier ~= ARGV[5]) then
    redis.call('HSET', KEYS[1], 'carrier', token .. ' ' .. ARGV[5])
  end
end
-- An expired lease is over, even if nobody wanted the lock meanwhile; nor is a grant that
-- follows now a renewal. And a waiter may have become next because the one before it has
-- fallen silent.
local renewed = held
local more, news = grant()
spread(news)
if not renewed then
  return -more
end
return head and 2 + more or 1
