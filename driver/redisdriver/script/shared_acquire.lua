-- shared_acquire.lua: take a part of a lock, wait for it, or say that one still waits.
--
-- KEYS[1]   lock
-- ARGV[4]   ask: number of this attempt
-- ARGV[5]   TTL in ms
-- ARGV[6]   how many fences to reserve
-- ARGV[7]   1 to queue when too little is left
-- ARGV[8]   client to push the grant to, - for none
-- ARGV[9]   text about the holder
-- ARGV[10]  birth and
-- ARGV[11]  place that this token was told before, else 0
-- ARGV[12]  weight: how much to take
-- ARGV[13]  limit: how much there is to hold, in the opinion of the request
-- ARGV[14]  owner on whose behalf it asks, without spaces; absent for none
--
-- Returns as mutex_acquire.lua does, or {4, limit} if the weight is more than the limit
-- and {5, limit, more} if the lock is in use with another limit.

local ttl, fences, weight, asked = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[12]), tonumber(ARGV[13])
local client, holder = ARGV[8], ARGV[9]
if ARGV[14] then
  self = ' ' .. ARGV[14]
end

-- A clock that was set back shows in a lease that ends later than it can, see expire.
local current = used == 0 or now <= ends and ends <= now + span
if not me and not head and dead == '' and current and agree(asked) and weight <= limit - used and self == token then
  local alone = used == 0
  local life = hold(token, weight, ttl, fences, client, holder)
  if alone then
    redis.call('PEXPIRE', KEYS[1], int(life))
  else
    keep(life)
  end
  return { 3, held }
end
