-- acquire.lua: take the lock if it is free, or if this token has it. Needs whose.lua and fence.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  only with fences: counter, a string: the number of the last grant
-- ARGV[1]  token
-- ARGV[2]  length of the lease in ms
--
-- Returns {status, left}. status 0 the token was given up before, 1 it holds the lock,
-- 2 another does; left is the rest of its lease in ms, -1 if it has no end. Who it is follows, or
-- the fence.

if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return { 0, 0 }
end
if redis.call('EXISTS', KEYS[1]) == 0 then
  local number = fence(KEYS[3], true) -- may fail, and then there is no lock
  redis.call('HSET', KEYS[1], ARGV[1], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return { 1, 0, number }
end
local left = redis.call('PTTL', KEYS[1])
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return { 2, left, whose() }
end
-- A repeat is not counted again. It rests on its own ask, so it has to last from now on,
-- but it never shortens what a renewal has made longer: it may be late.
if left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return { 1, 0, fence(KEYS[3], false) }
