-- lock_release_slow.lua: the second part of <kind>_release.lua, when others wait, or
-- the token is no holder.
--
-- KEYS[1]  lock
-- ARGV[4]  1 if an ask of this token may still be under way
--
-- Returns as <kind>_release.lua does.

-- Whatever comes first is an HDEL, see keep.
local status = 0
if held then
  free()
  status = 1
else
  redis.call('HDEL', KEYS[1], 'none')
end
expire()
if mine then
  waiter_drop(mine, token)
  status = 2
end
if ARGV[4] == '1' then
  bury(token)
end
local more, news = grant()
if used == 0 and not head then
  redis.call('PEXPIRE', KEYS[1], int(lifetime(0)))
end
spread(news)
return { status, more }
