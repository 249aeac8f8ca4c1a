-- lib/locks.lua: what a call for many locks begins with.
--
-- Those that the short way handles have a reply then. What it leaves is for each.lua.
--
-- KEYS[n]  lock
--
-- Behind the arguments of several locks may be how many of them each.lua handles.

local ARGUMENTS = math.floor((#ARGV - 2) / #KEYS) -- of each lock
local at_length = ARGV[3 + #KEYS * ARGUMENTS]
local replies, left = {}, #KEYS
local records = redis.call('MGET', unpack(KEYS)) -- the thin ones
local passed = {} -- locks of which what was read is out of date, or that others are to get or give up first
