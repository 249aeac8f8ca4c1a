-- lock.lua: the clock, the life of the key, and the first look at it.
--
-- Begins every script. A lock is one hash. All times in it are ms of the server's
-- clock. These fields are the same for all kinds of lock, besides those in queue.lua:
--
--   fence     fence of the last grant, whether or not it still holds
--   reserved  how many fences that grant may use, if not one
--
-- A kind of lock is two files. The one without a suffix, which comes next, has its
-- fields and how a token is made a holder. The other, <kind>_lease.lua, comes after
-- queue.lua and has how a lease goes on and ends. What the rest needs to know of a
-- lock stands in four variables:
--
--   used, limit  how much of it is held, and how much there is to hold
--   held         the fence of the lease that this token holds, false for none
--   ends         no lease ends before this time; true only after expire()
--
-- Scripts come in two parts, as sync.Mutex has Lock and lockSlow: what is needed
-- when nobody else is there, and, after queue.lua, the rest. Redis runs a script
-- from its first line, so the first part does not pay for what the second defines.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[3]  retention: how long, in ms, the key outlives its last use

local token, retention = ARGV[1], tonumber(ARGV[3])
local self = token -- who holds when this token does: it or, see owner.lua, its owner
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local head, dead, fence, reserved

local function int(n)
  return string.format('%.0f', n)
end

-- Read what is always needed. head is absent when nobody waits and dead when there
-- are no tombstones: this one look is enough for a lock that nobody else wants. The
-- fields of the kind follow from the fifth value on.
local function first_look(...)
  local v = redis.call('HMGET', KEYS[1], 'head', 'dead', 'fence', 'reserved', ...)
  head, dead = v[1] and tonumber(v[1]), v[2] or ''
  fence, reserved = tonumber(v[3] or 0), tonumber(v[4] or 1)
  return v
end

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return math.min(500, math.max(5, math.floor(ttl / 20)))
end

-- A new grant's fence lies beyond all that the last one may use. It is the time
-- unless that has been used up, so it grows even when the key was lost. raised is for
-- who knows a fence that is beyond them, too.
local function advance(fences, raised)
  fence = raised or math.max(fence + reserved, now_us)
  if fences ~= reserved then
    redis.call('HSET', KEYS[1], 'reserved', int(fences))
  end
  reserved = fences
end

-- See notify in queue.lua.
local heeds
local function heed(who, client)
  if string.sub(client, -1) == '!' then
    heeds = { client, 'wanted ' .. who }
    redis.call('HSET', KEYS[1], 'notice', who .. ' ' .. client)
  end
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

-- Let the key live ms from now or as long as it would anyway: somebody else may
-- count on more. It writes even when nothing changes, because a script whose first
-- write is one that needs no memory may write anything when memory is full.
local function keep(ms)
  redis.call('PEXPIRE', KEYS[1], int(math.max(ms, redis.call('PTTL', KEYS[1]))))
end
