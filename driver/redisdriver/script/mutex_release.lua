-- mutex_release.lua: give up the lock, or one's place in its queue.
--
-- KEYS[1]  lock
-- ARGV[4]  1 if an ask of this token may still be under way: it must find it dead
--
-- Returns {status, more}. status 0 the token neither held nor waited, 1 it held,
-- 2 it waited. more is 1 if the script should be run again, because it stopped in
-- the middle of a long queue.

if owner == token and not head and ARGV[4] == '0' then
  -- Nobody waits: nobody counts on the key for longer than this.
  free()
  redis.call('PEXPIRE', KEYS[1], int(lifetime(0)))
  return { 1, 0 }
end
