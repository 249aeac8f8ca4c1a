-- rlock.lua: the hash of an RLock.

-- rlock returns the holder in the hash, and how often it holds; nil if the hash is no RLock.
local function rlock()
  local lock = redis.call('HLEN', KEYS[1]) == 1 and redis.call('HGETALL', KEYS[1]) or { '', '' }
  if string.find(lock[2], '^[1-9]%d*$') then
    return lock[1], lock[2]
  end
end
