-- release.lua: give the lock up.
--
-- KEYS[1]  lock, a string: the token of the holder
-- KEYS[2]  only if an ask of this token may still arrive: will say that it was given up
-- ARGV[1]  token
-- ARGV[2]  with KEYS[2]: how long it will say so, in ms
--
-- Returns 1 released, 0 not held by this token.

if KEYS[2] then
  -- The first write is one that a server does not refuse when its memory is full, and
  -- after a first write it refuses no other.
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
  redis.call('SET', KEYS[2], '', 'PX', ARGV[2])
end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
