-- owner_release.lua: give up what a token of the owner holds, and tell those who wait if
-- it was the last.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of the owner, by the end of their leases
-- ARGV[1]  token
-- ARGV[2]  owner, as a field
-- ARGV[3]  channel of the lock
-- ARGV[4]  PUBLISH or SPUBLISH
-- ARGV[5]  how long it will be known that the token was given up, in ms; 0 for not at all
--
-- Returns 1 released, 0 not held by this token.

if ARGV[5] ~= '0' then
  settle({ ARGV[1] }, ARGV[5])
end
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end
prune()
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then
  return 0
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  write()
  return 1
end
redis.call('DEL', KEYS[1])
redis.pcall(ARGV[4], ARGV[3], '0')
return 1
