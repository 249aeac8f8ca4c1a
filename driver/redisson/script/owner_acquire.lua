-- owner_acquire.lua: take the lock if it is free, or if the owner of this token has it.
-- Needs owner.lua, whose.lua and fence.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of the owner, by the end of their leases
-- KEYS[4]  only with fences: counter, a string: the number of the last grant
-- ARGV[1]  token
-- ARGV[2]  owner, as a field
-- ARGV[3]  length of the lease in ms
--
-- Returns {status, left}, as acquire.lua.

if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return { 0, 0 }
end
local number
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  number = fence(KEYS[4], false) -- that of the owner
  prune()
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return { 2, redis.call('PTTL', KEYS[1]), whose() }
else
  number = fence(KEYS[4], true) -- may fail, and then there is no lock
  redis.call('DEL', KEYS[3]) -- of a lock that was taken away by others
end
hold()
write()
return { 1, 0, number }
