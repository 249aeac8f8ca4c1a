-- release.lua: give the lock up, and tell those who wait.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  only if an ask of this token may still arrive: settled, a zset
-- ARGV[1]  token
-- ARGV[2]  channel of the lock
-- ARGV[3]  PUBLISH or SPUBLISH
-- ARGV[4]  with KEYS[2]: how long it will be known that the token was given up, in ms
--
-- Returns 1 released, 0 not held by this token.

if KEYS[2] then
  settle({ ARGV[1] }, ARGV[4])
end
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then
  return 0
end
-- pcall: whoever may not publish has released all the same.
redis.pcall(ARGV[3], ARGV[2], '0')
return 1
