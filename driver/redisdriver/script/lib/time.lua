-- lib/time.lua: the time, and how long things last.

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

-- What is matched most, see record.lua and lock.lua.
local HOLDER = '^(%S+) (%d+) (%d+) (%d+) (%S+) (.*)$' -- token, expires, ttl, weight, tag, what was granted
local SHARES = '^(%d+) (%d+) (%d+) (%d+)$' -- count, used, earliest, span

-- %.0f would take three times as long. On a server of 32 bits %d is wrong: short/acquire.lua
-- finds out, and without it nobody has a lock.
local function int(number)
  return format('%d', number)
end

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return ttl >= 10000 and 500 or ttl <= 100 and 5 or math.floor(ttl / 20)
end

-- A waiter must ask again within this time or lose its place. A grant may be pushed until
-- then, and still leaves it a third of its TTL to act on.
local function patience(ttl)
  return math.floor(ttl * 2 / 3)
end
