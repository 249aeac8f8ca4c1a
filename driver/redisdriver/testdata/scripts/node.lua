-- op/node.lua
local here, there = redis.pcall('EXISTS', ARGV[1]), redis.pcall('EXISTS', ARGV[2])
if KEYS[n] == ARGV[1] and type(here) == 'number' and type(there) == 'table'
and string.find(there.err, 'non local key', 1, true) then
return 1
end
return 0
