-- rw_release.lua: give the lock up, and tell those who wait if nobody has it any more. Needs
-- settle.lua, owner.lua and rw_readers.lua.
--
-- KEYS[1]  lock, a hash: "mode", and holders
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of an owner, by the end of their leases
-- KEYS[4]  timeout, a string: lives as long as this token may read
-- ARGV[1]  token
-- ARGV[2]  owner, as a field, or '' for none
-- ARGV[3]  channel of the lock
-- ARGV[4]  PUBLISH or SPUBLISH
-- ARGV[5]  how long it will be known that the token was given up, in ms; 0 for not at all
-- ARGV[6]  what the keys of readers begin with
--
-- Returns 1 released, 0 not held by this token.

if ARGV[5] ~= '0' then
  settle({ ARGV[1] }, ARGV[5])
end
-- free has nobody hold the lock. News of 1 are for all waiters of a program, of 0 for one. pcall:
-- whoever may not publish has released all the same.
local function free(news)
  redis.call('DEL', KEYS[1])
  redis.pcall(ARGV[4], ARGV[3], news)
end
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  local held = redis.call('DEL', KEYS[4])
  redis.call('HDEL', KEYS[1], ARGV[1])
  local last = others(ARGV[6])
  if last > 0 then
    redis.call('PEXPIRE', KEYS[1], last)
  else
    free('0')
  end
  return held
elseif redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 1 then
  free('1')
  return 1
elseif ARGV[2] == '' or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end
prune()
if redis.call('ZREM', KEYS[3], ARGV[1]) == 0 then
  return 0
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  write()
else
  free('1')
end
return 1
