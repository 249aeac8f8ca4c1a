-- mutex_lease.lua: how the lease of a mutex goes on and ends.
--
-- Comes after queue.lua in the scripts of a mutex.
--
-- KEYS[1]  lock

local length -- of the lease

-- End the lease of whoever holds it.
local function free()
  disband(occupant)
  redis.call('HDEL', KEYS[1], 'token', 'expires', 'ttl', 'holder', 'carrier', 'notice')
  occupant, used, held = false, 0, false
end

-- Read the rest, and end the lease of a holder whose time is over. No lease can have
-- more time left than its whole length: if one has, the server's clock was set back,
-- and the lock must not stay blocked for as long as that.
local function expire()
  local expires, ttl = look('expires', 'ttl')
  held = occupant == self and fence
  if not occupant then
    return
  end
  ends, length = tonumber(expires), tonumber(ttl)
  local longest = now + length + grace(length)
  if ends < now then
    free()
  elseif ends > longest then
    keep(retention)
    ends = longest
    redis.call('HSET', KEYS[1], 'expires', int(ends))
  end
end

-- Every "you hold it" gives the full TTL again, because the holder's trust starts
-- from the ask that this answers. It takes nothing away: a late ask knows nothing of a
-- renewal for longer.
local function extend(ttl)
  ttl = math.max(ttl, length)
  keep(lifetime(ttl + grace(ttl)))
  ends = math.max(ends, now + ttl + grace(ttl))
  redis.call('HSET', KEYS[1], 'expires', int(ends), 'ttl', int(ttl))
end

-- How much somebody holds, false for nothing.
local function weight_of(who)
  return occupant == who and 1
end

-- Take that from them, for another who gets it at once.
local function vacate(who)
  disband(who)
  redis.call('HDEL', KEYS[1], 'carrier')
  occupant, used = false, 0
end

-- Let the lease end at another time, that of one with this TTL.
local function last(expires, ttl)
  keep(lifetime(expires - now))
  ends, length = expires, ttl
  redis.call('HSET', KEYS[1], 'expires', int(ends), 'ttl', int(ttl))
end

-- How long the lease of the last holder can go on unless it is renewed, false if that is not
-- known.
local function longest()
  return used > 0 and ends - now or 0
end

-- Give this token's lease, which is that of the last grant, a larger fence, with so many
-- numbers. Those that it was given before stay its own.
local function raise(least, fences)
  keep(retention)
  reserve(least, math.max(fences, fence + reserved - least))
  held = fence
  keep(lifetime(0))
  redis.call('HSET', KEYS[1], 'fence', int(fence))
end

-- Give this token's lease more numbers: the first of them, and how many.
local function add(fences)
  local first, n = take(fences)
  reserve(fence, first + n - fence)
  keep(lifetime(0))
  return first, n
end
