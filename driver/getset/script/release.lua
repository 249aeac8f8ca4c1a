-- release.lua: give the lock up.
--
-- KEYS[1]  lock, a string: when the lease ends, in ms since 1970
-- KEYS[2]  owner, a string: what one of us wrote into the lock, and its token
-- KEYS[3]  only if an ask of this token may still arrive: will say that it was given up
-- ARGV[1]  token
-- ARGV[2]  with KEYS[3]: how long it will say so, in ms
--
-- Returns 1 released, 0 not held by this token.

if KEYS[3] then
  -- The first write is one that a server does not refuse when its memory is full, and
  -- after a first write it refuses no other.
  redis.call('PEXPIRE', KEYS[3], ARGV[2])
  redis.call('SET', KEYS[3], '', 'PX', ARGV[2])
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('GET', KEYS[1])
-- A value in the past is left alone: if it went between GET and GETSET of another, that would
-- lose, and leave a time with no holder behind.
if not value or redis.call('GET', KEYS[2]) ~= value .. ' ' .. ARGV[1] or tonumber(value) < now then
  return 0
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
