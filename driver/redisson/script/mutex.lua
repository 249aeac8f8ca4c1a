-- mutex.lua: refuse what is in KEYS[1] if it is no RLock. It stands before the rest, as it may
-- return. Needs rlock.lua.

if redis.call('EXISTS', KEYS[1]) == 1 and not rlock() then
  return redis.error_reply('WRONGTYPE the hash is no RLock')
end
