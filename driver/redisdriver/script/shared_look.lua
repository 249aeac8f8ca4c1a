-- shared_look.lua: the first look at a lock of which parts can be held.
--
-- KEYS[1]  lock
-- ARGV[1]  token

local seen = redis.call('HMGET', KEYS[1], 'head', 'dead', 'fence', 'reserved',
  'used', 'limit', 'resized', 'earliest', 'span', 'h:' .. ARGV[1])
local used, limit, resized = tonumber(seen[5] or 0), tonumber(seen[6] or 0), seen[7]
local ends, span = tonumber(seen[8] or 0), tonumber(seen[9] or 0)
