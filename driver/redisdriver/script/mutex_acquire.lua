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

local ask, ttl, fences = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local wait, client, holder = ARGV[7] == '1', ARGV[8], ARGV[9]

if buried() then
  return { 0, 0, 0, 0, 0 }
end
expire()
if owner == token then
  extend(ttl)
  return { 3, fence, 0, 0, 0 }
end

local more, news = 0, {}
if wait and (owner or head) then
  waiter_ask(ask, ttl, fences, client, holder, tonumber(ARGV[10]), tonumber(ARGV[11]))
  more, news = grant()
else
  -- Who does not wait has no place, so it must not overtake those who have.
  more, news = grant()
  if not owner and not head then
    hold(token, ttl, fences, client, holder)
  end
end
spread(news)
if owner == token then
  return { 3, fence, 0, 0, 0 }
end
if not wait then
  return { 1, owner and expires - now + 1 or 0, more, 0, 0 }
end
-- Nobody is told when a lease runs out. Who is next looks again at that time.
local next = owner and mine == (skip or head)
return { 2, next and expires - now + 1 or 0, more, birth, mine }
