-- mutex_acquire.lua: take the lock, wait for it, or say that one still waits.
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
--
-- Returns {status, n, more, birth, place}. status 0 the token was released before,
-- 1 busy, 2 queued, 3 granted. n is the fence if granted, else the ms after which
-- to look again, 0 for no special time. more is 1 if the script should be run
-- again at once, because it stopped in the middle of a long queue.

local ttl, fences = tonumber(ARGV[5]), tonumber(ARGV[6])
local client, holder = ARGV[8], ARGV[9]

if not owner and not head and dead == '' then
  hold(token, ttl, fences, client, holder)
  return { 3, fence, 0, 0, 0 }
end
