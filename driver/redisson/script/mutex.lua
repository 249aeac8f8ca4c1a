-- mutex.lua: refuse the hash of an RReadWriteLock in KEYS[1]. It comes first, as it may return.

if redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
  return redis.error_reply('WRONGTYPE the hash is no RLock')
end
