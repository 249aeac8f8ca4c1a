-- mutex_acquire.lua: take a mutex, wait for it, or say that one still waits.
--
-- KEYS[1]   lock
-- ARGV[4]   ask: number of this attempt
-- ARGV[5]   TTL in ms
-- ARGV[6]   how many fences to reserve
-- ARGV[7]   1 to queue when the lock is taken
-- ARGV[8]   client to push the grant to, - for none
-- ARGV[9]   text about the holder
-- ARGV[10]  birth and
-- ARGV[11]  place that this token was told before, else 0
-- ARGV[12]  owner on whose behalf it asks, without spaces; absent for none
--
-- Returns {0} if the token was released before, {1, ms, more, 0, 0, carrier} busy, {2,
-- ms, more, birth, place, carrier} queued, {3, fence} granted. ms is the time after which
-- to look again, 0 for none in particular. more is 1 if the script should be run again at
-- once, because it stopped in the middle of a long queue. carrier is what a holder says
-- of itself.

local ttl, fences, weight = tonumber(ARGV[5]), tonumber(ARGV[6]), 1
local client, holder = ARGV[8], ARGV[9]
if ARGV[12] then
  self = ' ' .. ARGV[12]
end

if not occupant and not head and dead == '' and self == token then
  -- Nobody else counts on the key, so nothing can be longer.
  redis.call('PEXPIRE', KEYS[1], int(hold(token, weight, ttl, fences, client, holder)))
  return { 3, held }
end
