-- acquire.lua: take the lock if it is free, or if this token has it.
--
-- KEYS[1]  lock, a string: the token of the holder
-- KEYS[2]  there if the token was given up
-- ARGV[1]  token
-- ARGV[2]  length of the lease in ms
--
-- Returns {status, left}. status 0 the token was given up before, 1 it holds the lock,
-- 2 another does; left is the rest of its lease in ms, -1 if it has no end. At most 256 bytes of
-- its token follow.

if redis.call('EXISTS', KEYS[2]) == 1 then
  return { 0, 0 }
end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return { 1, 0 }
end
local left, holder = redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1])
if holder ~= ARGV[1] then
  return { 2, left, string.sub(holder, 1, 256) }
end
-- A repeat rests on its own ask, so it has to last from now on. It never shortens what
-- a renewal has made longer: it may be late.
if left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return { 1, 0 }
