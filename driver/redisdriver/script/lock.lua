-- lock.lua: the clock, and what the first look at a lock has found.
--
-- Begins every script, after <kind>_look.lua. A lock is one hash. All times in it are
-- ms of the server's clock. These fields are the same for all kinds of lock, besides
-- those in queue.lua:
--
--   fence     fence of the last grant, whether or not it still holds
--   reserved  how many numbers that grant may use, from its fence on, if not one
--
-- A kind of lock is three files. <kind>_look.lua reads what is always needed: that is
-- enough for a lock that nobody else wants. <kind>.lua, which comes after lock_life.lua,
-- has its fields and how a token is made a holder, and <kind>_lease.lua, after queue.lua,
-- how a lease goes on and ends. What the rest needs to know of a lock stands in five
-- variables:
--
--   used, limit  how much of it is held, and how much there is to hold
--   held         the fence of the lease that this token holds, false for none
--   numbers      how many fences that lease may use, from this one on
--   ends         no lease ends before this time; true only after expire()
--
-- Scripts come in two parts, as sync.Mutex has Lock and lockSlow. The first takes or
-- frees a lock that nobody else wants, which is what happens most of the time. Redis
-- runs a script from its first line, and to define a function costs it as much as to
-- run a small one. So the first part comes before all functions, and has none: what it
-- has in common with the second is written out once more. A test compares what both
-- leave behind.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[3]  retention: how long, in ms, the key outlives its last use

local token, retention = ARGV[1], tonumber(ARGV[3])
local self = token -- who holds when this token does: it or, see owner.lua, its owner
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
-- head is absent when nobody waits, and dead when there are no tombstones.
local head, dead = seen[1] and tonumber(seen[1]), seen[2] or ''
local fence, reserved = tonumber(seen[3] or 0), tonumber(seen[4] or 1)
