-- inspect.lua: who holds the lock, and for how long.
--
-- KEYS[1]  lock, a string: the token of the holder
--
-- Returns {'', left, token}: the rest of the lease in ms, -1 if it has no end, and at most
-- 256 bytes of the token. If nobody holds the lock, {}.

local token = redis.call('GET', KEYS[1])
if not token then
  return {}
end
return { '', redis.call('PTTL', KEYS[1]), string.sub(token, 1, 256) }
