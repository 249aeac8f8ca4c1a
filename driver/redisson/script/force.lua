-- force.lua: end the lease of whoever holds the lock, and tell those who wait. Needs mutex.lua and
-- settle.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of an owner, by the end of their leases
-- ARGV[1]  channel of the lock
-- ARGV[2]  PUBLISH or SPUBLISH
-- ARGV[3]  how long it will be known that the tokens were given up, in ms
--
-- Returns 1 released, 0 not held by anybody.

local holder = redis.call('HKEYS', KEYS[1])
if #holder == 0 then
  return 0
end
-- An ask of theirs that is on its way must not take the lock back.
settle(holder, ARGV[3])
settle(redis.call('ZRANGE', KEYS[3], 0, -1), ARGV[3])
redis.call('DEL', KEYS[1], KEYS[3])
redis.pcall(ARGV[2], ARGV[1], '0')
return 1
