-- lock_release_slow.lua: the second part of <kind>_release.lua, when others wait, or
-- the token is no holder.
--
-- KEYS[1]  lock
-- ARGV[4]  1 if an ask of this token may still be under way
-- ARGV[5]  carrier
--
-- Returns as <kind>_release.lua does.

-- Whatever comes first is an HDEL, see keep.
redis.call('HDEL', KEYS[1], 'none')
local status, holds = 0, held
expire()
if held then
  holds = held
  free()
end
if holds then
  status = 1
  if ARGV[5] ~= '' then
    carrier = ARGV[5]
  end
end
if mine then
  waiter_drop(mine, token)
  status = 2
end
if ARGV[4] == '1' then
  bury(token)
end
local more, news = grant()
local rest = not head and longest()
if rest then
  redis.call('PEXPIRE', KEYS[1], int(lifetime(rest)))
end
spread(news)
return { status, more }
