-- rw_owner_acquire.lua: take the lock to write if it is free, or if the owner of this token has it.
-- Needs owner.lua and rw_whose.lua.
--
-- KEYS[1]  lock, a hash: "mode", and holders
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of the owner, by the end of their leases
-- ARGV[1]  token
-- ARGV[2]  owner, as a field
-- ARGV[3]  length of the lease in ms
--
-- Returns {status, left}, as rw_acquire.lua.

if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return { 0, 0 }
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  prune()
elseif mode then
  return { 2, redis.call('PTTL', KEYS[1]), whose() }
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE the hash is no RReadWriteLock')
else
  redis.call('DEL', KEYS[3]) -- of a lock that was taken away by others
  redis.call('HSET', KEYS[1], 'mode', 'write')
end
hold()
write()
return { 1, 0 }
