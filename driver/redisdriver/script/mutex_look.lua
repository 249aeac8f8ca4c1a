-- mutex_look.lua: the first look at a mutex.
--
-- KEYS[1]  lock

local seen = redis.call('HMGET', KEYS[1], 'head', 'dead', 'fence', 'reserved', 'token')
local resized = false -- only a semaphore is
