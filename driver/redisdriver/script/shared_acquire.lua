-- shared_acquire.lua: take a part of a lock, wait for it, or say that one still waits.
--
-- KEYS[1]   lock
-- ARGV[4]   ask: number of this attempt
-- ARGV[5]   TTL in ms
-- ARGV[6]   how many fences may be of use
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
local agreed = used == 0 and not resized and asked or limit

-- There is room, nobody waits, and no owner or notice is to be noted. A clock that was set
-- back shows in a lease that ends later than it can, see expire. What comes is agree,
-- take, hold and lifetime.
if not (seen[10] or head or ARGV[14]) and dead == '' and string.byte(client, -1) ~= 33
  and (resized or agreed == asked) and weight <= agreed - used
  and (used == 0 or now <= ends and ends <= now + span) then
  local length = ttl + math.min(500, math.max(5, math.floor(ttl / 20)))
  fence = math.max(fence + reserved, now_us + 1 - (seen[3] and fences or 1))
  local n = math.max(1, now_us + 1 - fence)
  if n ~= reserved then
    redis.call('HSET', KEYS[1], 'reserved', string.format('%.0f', n))
  end
  local expires, life = string.format('%.0f', now + length),
    math.max(length + (resized and retention or retention / 2), retention + math.max(0, math.floor((fence + n) / 1000) - now))
  if used == 0 or now + length < ends then
    redis.call('HSET', KEYS[1], 'limit', string.format('%.0f', agreed), 'earliest', expires, 'span', string.format('%.0f', length))
  end
  redis.call('HSET', KEYS[1], 'used', string.format('%.0f', used + weight), 'fence', string.format('%.0f', fence),
    'h:' .. token, string.format('%.0f %s %.0f %.0f %.0f %.0f %.0f ', weight, expires, ttl, fence, n, fence + n - 1, now)
      .. client .. ' ' .. holder)
  if used > 0 then
    life = math.max(life, redis.call('PTTL', KEYS[1])) -- the others count on it, too
  end
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
  return n == fences and fence or { 3, fence, 0, n }
end
if ARGV[14] then
  self = ' ' .. ARGV[14]
end
