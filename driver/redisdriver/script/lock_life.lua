-- lock_life.lua: fences, and how long things last.
--
-- Comes after lock.lua, and after the first part of a script that has two.
--
-- KEYS[1]  lock

local function int(n)
  return string.format('%.0f', n)
end

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return math.min(500, math.max(5, math.floor(ttl / 20)))
end

-- Numbers for so many fences, or as many as there are: the first of them, and how many.
--
-- They lie beyond the last that was given, and not beyond the time in us. So nobody is given
-- numbers faster than the clock gives new ones, and those that are given after the key was
-- lost, by this server or another, are larger than all before. A key that does not know what
-- was given before gives the time alone: what lies before it may have been given. If the
-- clock was set back, numbers go on one at a time.
--
-- The wrong version has each grant reserve as many as were asked for, from the time on. Those
-- of quick grants run ahead of the clock, and what another server grants after a failover is
-- smaller.
local function take(fences)
  local first = math.max(fence + reserved, now_us + 1 - (seen[3] and fences or 1))
  return first, math.max(1, now_us + 1 - first)
end

-- Let the last grant use n numbers from first on.
local function reserve(first, n)
  if n ~= reserved then
    redis.call('HSET', KEYS[1], 'reserved', int(n))
  end
  fence, reserved = first, n
end

-- See notify in queue.lua.
local heeds
local function heed(who, client)
  if string.sub(client, -1) == '!' then
    heeds = { client, 'wanted ' .. who }
    redis.call('HSET', KEYS[1], 'notice', who .. ' ' .. client)
  end
end

-- How long the key lives if its lease lasts ms: for longer than that, and for the retention
-- from now on, so that a short lease need not be followed by a look at the key's life when
-- it is released. A limit that was set is kept for the whole retention after the last use.
--
-- Fences must not repeat although the key is forgotten after a while. So it outlives
-- them by the retention, should they be ahead of a clock that was set back.
local function lifetime(ms)
  local ahead = math.floor((fence + reserved) / 1000) - now
  return math.max(ms + (resized and retention or retention / 2), retention + math.max(0, ahead))
end

-- Let the key live ms from now or as long as it would anyway: somebody else may
-- count on more. It writes even when nothing changes, because a script whose first
-- write is one that needs no memory may write anything when memory is full.
local function keep(ms)
  redis.call('PEXPIRE', KEYS[1], int(math.max(ms, redis.call('PTTL', KEYS[1]))))
end
