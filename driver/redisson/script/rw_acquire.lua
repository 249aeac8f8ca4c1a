-- rw_acquire.lua: take the lock if it is free, if this token has it, or to read beside readers.
-- Needs rw_whose.lua.
--
-- KEYS[1]  lock, a hash: "mode" is read or write; all other fields are holders, with how often
--          each holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[4]  timeout, a string: lives as long as this token may read
-- ARGV[1]  token
-- ARGV[2]  read or write
-- ARGV[3]  length of the lease in ms
--
-- Returns {status, left}. status 0 the token was given up before, 1 it holds the lock,
-- 2 another does; left is the rest of its lease in ms, -1 if it has no end. Who it is follows.

if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return { 0, 0 }
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE the hash is no RReadWriteLock')
end
local field = ARGV[2] == 'write' and ARGV[1] .. ':write' or ARGV[1]
if mode and (mode ~= 'read' or ARGV[2] ~= 'read') and redis.call('HEXISTS', KEYS[1], field) == 0 then
  return { 2, redis.call('PTTL', KEYS[1]), whose() }
end
-- A repeat is not counted again. It rests on its own ask, so it has to last from now on,
-- but it never shortens what a renewal has made longer: it may be late.
redis.call('HSET', KEYS[1], 'mode', ARGV[2], field, 1)
if ARGV[2] == 'read' then
  redis.call('SET', KEYS[4], 1, 'PX', math.max(redis.call('PTTL', KEYS[4]), tonumber(ARGV[3])))
end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])))
return { 1, 0 }
