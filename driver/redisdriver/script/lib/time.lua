-- lib/time.lua: the time, and how long things last.
--
-- Begins every script. A script handles one lock after the other, KEYS[n]; all times are ms
-- of the server's clock. The Go side replaces n by 1 where a script is for one lock, since
-- some proxies want to see literally which key a command is for.
--
-- A lock that one holds and nobody waits for is a string, "thin", see record.lua. As soon as there is more to
-- remember it is a hash, "fat", see lock.lua.
--
-- Most calls end in short/, which is one straight line: to define a function costs as much as to
-- run a small one, the more so the more it uses of what is around it. These use nothing.
-- x + 0 is tonumber(x) at half the cost.
--
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[2]  retention: how long, in ms, the key outlives its last use

local n = 1
local unpack = table.unpack or unpack -- Lua 5.4 or 5.1
local find, match, sub, format = string.find, string.match, string.sub, string.format -- each use is cheaper
local retention = ARGV[2] + 0
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
