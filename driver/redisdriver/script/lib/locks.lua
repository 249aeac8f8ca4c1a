-- lib/locks.lua: what a call for many locks begins with.
--
-- Those that the short way handles have a reply then. What it leaves is for each.lua.
--
-- KEYS[n]  lock

local ARGUMENTS = (#ARGV - 2) / #KEYS -- of each lock
local replies, left = {}, #KEYS
local records = redis.call('MGET', unpack(KEYS)) -- the thin ones
