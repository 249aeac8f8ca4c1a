-- mutex_release.lua: give up the lock, or one's place in its queue.
--
-- KEYS[1]  lock
-- ARGV[4]  1 if an ask of this token may still be under way: it must find it dead
--
-- Returns {status, more}. status 0 the token neither held nor waited, 1 it held,
-- 2 it waited. more is 1 if the script should be run again, because it stopped in
-- the middle of a long queue.

local status = 0

-- Each branch begins with HDEL, see keep.
if owner == token then
  free()
  status = 1
elseif mine then
  waiter_drop(mine, token)
  status = 2
else
  redis.call('HDEL', KEYS[1], 's:' .. token)
end
if ARGV[4] == '1' then
  bury(token)
end
expire()
local more, news = grant()
if owner and head and mine == head then
  -- The head left a hole; find the next one, without granting anything.
  serve(function() return nil end)
end
if not owner and not head then
  -- Nobody holds, nobody waits: nobody counts on more than this.
  redis.call('PEXPIRE', KEYS[1], int(lifetime(0)))
end
spread(news)
return { status, more }
