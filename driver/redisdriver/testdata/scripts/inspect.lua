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
-- lib/locks.lua
local ARGUMENTS = math.floor((#ARGV - 2) / #KEYS)
local at_length = ARGV[3 + #KEYS * ARGUMENTS]
local replies, left = {}, #KEYS
local records = redis.call('MGET', unpack(KEYS))
-- op/inspect.lua
local ENOUGH = 2000
local told = 0
for n = 1, #KEYS do
if records[n] then
replies[n] = { now_us, records[n], {} }
elseif not replies[n] and told < ENOUGH then
local fields = redis.pcall('HGETALL', KEYS[n])
replies[n], told = fields.err and fields or { now_us, false, fields }, told + #fields
end
replies[n] = replies[n] or false
end
return replies
