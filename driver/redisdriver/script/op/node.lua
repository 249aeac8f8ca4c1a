-- op/node.lua: find out whether a script may use the keys of its node, and no others.
--
-- KEYS[n]  key of this node
-- ARGV[1]  the same
-- ARGV[2]  key of another
--
-- Returns 1 if so, else 0.

local here, there = redis.pcall('EXISTS', ARGV[1]), redis.pcall('EXISTS', ARGV[2])
if KEYS[n] == ARGV[1] and type(here) == 'number' and type(there) == 'table'
  and string.find(there.err, 'non local key', 1, true) then
  return 1
end
return 0
