-- mutex_release_slow.lua: the second part of mutex_release.lua, when others wait, or
-- the token is not the holder.
--
-- KEYS[1]  lock
-- ARGV[4]  1 if an ask of this token may still be under way
--
-- Returns as mutex_release.lua does.

-- Whatever comes first is an HDEL, see keep.
local status = 0
if owner == token then
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
if owner and head and mine == head then
  -- The head left a hole; find the next one, without granting anything.
  serve(function() return nil end)
end
if not owner and not head then
  redis.call('PEXPIRE', KEYS[1], int(lifetime(0)))
end
spread(news)
return { status, more }
