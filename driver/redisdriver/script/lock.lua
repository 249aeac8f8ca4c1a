-- lock.lua: the clock, the life of the key, and the first look at it.
--
-- Begins every script, followed by the fields and functions of the kind of lock. A
-- lock is one hash. All times in it are ms of the server's clock.
--
-- Scripts come in two parts, as sync.Mutex has Lock and lockSlow: what is needed
-- when nobody else is there, and, after queue.lua, the rest. Redis runs a script
-- from its first line, so the first part does not pay for what the second defines.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[3]  retention: how long, in ms, the key outlives its last use

local token, retention = ARGV[1], tonumber(ARGV[3])
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

-- head is absent when nobody waits and dead when there are no tombstones: this one
-- look is enough for a lock that is free, or that nobody else wants.
local state = redis.call('HMGET', KEYS[1], 'head', 'dead', 'token', 'fence', 'reserved')
local head, dead = state[1] and tonumber(state[1]), state[2] or ''

local function int(n)
  return string.format('%.0f', n)
end
