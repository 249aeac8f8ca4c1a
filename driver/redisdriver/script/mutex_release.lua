-- mutex_release.lua: give up a mutex, or one's place in its queue.
--
-- This part comes before mutex_look.lua, and does not even need to know the time. It
-- leaves the key as it is if that goes soon enough by itself, see lifetime in
-- lock_life.lua.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[3]  retention in ms
-- ARGV[4]  1 if an ask of this token may still be under way: it must find it dead
-- ARGV[5]  what the next holder is told of this one, empty for what it has said before
--
-- Returns {status, more}, or 1 for {1, 0}. status 0 the token neither held nor waited, 1
-- it held, 2 it waited. more is 1 if the script should be run again, because it stopped
-- in the middle of a long queue.

local seen = redis.call('HMGET', KEYS[1], 'token', 'head')
if seen[1] == ARGV[1] and not seen[2] and ARGV[4] == '0' and redis.call('PTTL', KEYS[1]) <= ARGV[3] * 1 then
  redis.call('HDEL', KEYS[1], 'token', 'expires', 'ttl', 'holder', 'carrier', 'notice')
  return 1
end
