-- clock.lua: the time, and how long things last.
--
-- Begins every script. A script handles one lock after the other, KEYS[n]; all times are ms
-- of the server's clock. The Go side replaces n by 1 where a script is for one lock, since
-- some proxies want to see literally which key a command is for.
--
-- A lock that nobody waits for is a string, "thin", see thin_acquire.lua. As soon as there
-- is more to remember it is a hash, "fat", see lock.lua.
--
-- To define a function costs as much as to run a small one. So there are few, and what few
-- calls need is defined when one does, see rare.lua. x + 0 is tonumber(x) at half the cost.
--
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[2]  retention: how long, in ms, the key outlives its last use

local n = 1
local unpack = table.unpack or unpack -- Lua 5.4 or 5.1
local retention = tonumber(ARGV[2])
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

-- %.0f would take three times as long. On a server of 32 bits %d is wrong: thin_acquire.lua
-- finds out, and without it nobody has a lock.
local function int(number)
  return string.format('%d', number)
end

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return ttl >= 10000 and 500 or ttl <= 100 and 5 or math.floor(ttl / 20)
end

-- Numbers for so many fences, or as many as there are, if high was the last one given: the
-- first of them, and how many.
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
local function numbers_after(high, fences)
  local first = now_us + 1 - (high > 0 and fences or 1)
  if first <= high then
    first = high + 1
  end
  return first, first < now_us and now_us + 1 - first or 1
end

-- How long a key lives if what it is used for lasts ms, and high is the last fence. Fences must
-- not repeat although the key is forgotten in the end: if the clock was set back, the key
-- lives until it has caught up with them.
local function lifetime(ms, high)
  if high > now_us or ms < 0 then -- the clock was set back
    ms = math.max(ms, math.floor(high / 1000) - now)
  end
  return retention + ms
end
-- inspect.lua: all there is to know. Writes nothing.
--
-- KEYS[n]  lock
--
-- Returns {now in us, thin form or nothing, {field, value, ...} of the fat form}.

local record = redis.call('MGET', KEYS[n])[1]
return { now_us, record, record and {} or redis.call('HGETALL', KEYS[n]) }
