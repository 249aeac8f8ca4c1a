-- mutex.lua: what holding a mutex means.
--
-- Prepended, after queue.lua, to the scripts of a mutex. Its fields of the hash:
--
--   token     the holder's token; absent when the lock is free
--   expires   end of its lease
--   ttl       length of its lease
--   fence     fence of the last grant, whether or not it still holds
--   reserved  how many fences that grant may use, if more than one
--   holder    "since client text": who holds, and where to reach them
--
-- KEYS[1]  lock

local owner, expires, owner_ttl = state[7], tonumber(state[8] or 0), tonumber(state[9] or 0)
local fence, reserved = tonumber(state[10] or 0), tonumber(state[11] or 1)

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return math.min(500, math.max(5, math.floor(ttl / 20)))
end

-- Fences must not repeat although the key is forgotten after a while. So it lives
-- until the clock has passed its fence, should the fence be ahead of the clock.
local function lifetime(ms)
  return math.max(ms, math.floor(fence / 1000) - now) + retention
end

local function hold(who, ttl, fences, client, holder)
  -- A new grant's fence lies beyond all that the last one may use. It is the time
  -- unless that has been used up, so it grows even when the key was lost.
  fence = math.max(fence + reserved, now_us)
  owner, expires, owner_ttl = who, now + ttl + grace(ttl), ttl
  redis.call('HSET', KEYS[1], 'token', who, 'expires', int(expires), 'ttl', int(ttl),
    'fence', int(fence), 'holder', int(now) .. ' ' .. client .. ' ' .. holder)
  if fences > 1 then
    redis.call('HSET', KEYS[1], 'reserved', int(fences))
  elseif reserved > 1 then
    redis.call('HDEL', KEYS[1], 'reserved')
  end
  reserved = fences
  keep(lifetime(ttl + grace(ttl)))
end

-- Every "you hold it" gives the full TTL again, because the holder's trust starts
-- from the ask that this answers.
local function extend(ttl)
  keep(lifetime(ttl + grace(ttl)))
  expires = math.max(expires, now + ttl + grace(ttl))
  redis.call('HSET', KEYS[1], 'expires', int(expires))
end

local function free()
  redis.call('HDEL', KEYS[1], 'token', 'expires', 'ttl', 'holder')
  owner = false
end

-- End the lease of a holder whose time is over. No lease can have more time left
-- than its whole length: if one has, the server's clock was set back, and the lock
-- must not stay blocked for as long as that.
local function expire()
  if not owner then
    return
  end
  if expires < now then
    free()
  elseif expires > now + owner_ttl + grace(owner_ttl) then
    keep(0)
    expires = now + owner_ttl + grace(owner_ttl)
    redis.call('HSET', KEYS[1], 'expires', int(expires))
  end
end

-- Give a free lock to the first in the queue that can take it. This is the push:
-- the waiter is made the holder here and now, and only told of it.
local function grant()
  if owner or not head then
    return 0, {}
  end
  return serve(function(w)
    hold(w.token, w.ttl, w.fences, w.client, w.holder)
    return 'granted ' .. w.token .. ' ' .. w.ask .. ' ' .. int(fence), true
  end)
end
