-- lib/time.lua
local n = 1
local unpack = table.unpack or unpack
local find, match, sub, format = string.find, string.match, string.sub, string.format
local retention = ARGV[2] + 0
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local function int(number)
return format('%d', number)
end
local function grace(ttl)
return ttl >= 10000 and 500 or ttl <= 100 and 5 or math.floor(ttl / 20)
end
local function patience(ttl)
return math.floor(ttl * 2 / 3)
end
-- op/inspect.lua
local record = redis.call('MGET', KEYS[n])[1]
return { now_us, record, record and {} or redis.call('HGETALL', KEYS[n]) }
