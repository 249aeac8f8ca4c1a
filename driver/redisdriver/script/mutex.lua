-- mutex.lua: what holding a mutex means.
--
-- Comes after lock.lua in the scripts of a mutex. Its fields of the hash:
--
--   token     the holder's token; absent when the lock is free
--   expires   end of its lease
--   ttl       length of its lease
--   fence     fence of the last grant, whether or not it still holds
--   reserved  how many fences that grant may use, if more than one
--   holder    "since client text": who holds, and where to reach them
--
-- KEYS[1]  lock

local owner, fence, reserved = state[3], tonumber(state[4] or 0), tonumber(state[5] or 1)
local expires

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return math.min(500, math.max(5, math.floor(ttl / 20)))
end

-- How long the key lives if its lease, or a wait, lasts ms: for longer than that, and
-- for the retention from now on, so that a short lease need not be followed by a look
-- at the key's life when it is released.
--
-- Fences must not repeat although the key is forgotten after a while. So it outlives
-- them by the retention, should they be ahead of the clock.
local function lifetime(ms)
  local ahead = math.floor((fence + reserved) / 1000) - now
  return math.max(ms + retention / 2, retention + math.max(0, ahead))
end

-- Make a token the holder. Returns how long the key must live then.
local function hold(who, ttl, fences, client, holder)
  -- A new grant's fence lies beyond all that the last one may use. It is the time
  -- unless that has been used up, so it grows even when the key was lost.
  fence = math.max(fence + reserved, now_us)
  owner, expires = who, now + ttl + grace(ttl)
  redis.call('HSET', KEYS[1], 'token', who, 'expires', int(expires), 'ttl', int(ttl),
    'fence', int(fence), 'holder', int(now) .. ' ' .. client .. ' ' .. holder)
  if fences > 1 then
    redis.call('HSET', KEYS[1], 'reserved', int(fences))
  elseif reserved > 1 then
    redis.call('HDEL', KEYS[1], 'reserved')
  end
  reserved = fences
  return lifetime(ttl + grace(ttl))
end
