-- mutex_acquire.lua: take a mutex, wait for it, or say that one still waits.
--
-- KEYS[1]   lock
-- ARGV[4]   ask: number of this attempt
-- ARGV[5]   TTL in ms
-- ARGV[6]   how many fences may be of use
-- ARGV[7]   1 to queue when the lock is taken
-- ARGV[8]   client to push the grant to, - for none
-- ARGV[9]   text about the holder
-- ARGV[10]  birth and
-- ARGV[11]  place that this token was told before, else 0
-- ARGV[12]  owner on whose behalf it asks, without spaces; absent for none
--
-- Returns {0} if the token was released before, {1, ms, more, 0, 0, carrier} busy, {2,
-- ms, more, birth, place, carrier} queued, {3, fence, more, n} granted, with n fences from that
-- on, or just the fence, granted at once, with as many as were asked for. ms is the time after which to look again, 0 for none in particular. more is 1 if
-- the script should be run again at once, because it stopped in the middle of a long queue.
-- carrier is what a holder says of itself.

local ttl, fences, weight = tonumber(ARGV[5]), tonumber(ARGV[6]), 1
local client, holder = ARGV[8], ARGV[9]

-- Nobody has it, nobody waits, and no owner or notice is to be noted. What comes is
-- take, hold and lifetime; nobody counts on the key, so nothing can be longer.
if not (seen[5] or head or ARGV[12]) and dead == '' and string.byte(client, -1) ~= 33 then
  local length = ttl + math.min(500, math.max(5, math.floor(ttl / 20)))
  fence = math.max(fence + reserved, now_us + 1 - (seen[3] and fences or 1))
  local n = math.max(1, now_us + 1 - fence)
  if n ~= reserved then
    redis.call('HSET', KEYS[1], 'reserved', string.format('%.0f', n))
  end
  redis.call('HSET', KEYS[1], 'token', token, 'expires', string.format('%.0f', now + length), 'ttl', ARGV[5],
    'fence', string.format('%.0f', fence), 'holder', string.format('%.0f ', now) .. client .. ' ' .. holder)
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f',
    math.max(length + retention / 2, retention + math.max(0, math.floor((fence + n) / 1000) - now))))
  return n == fences and fence or { 3, fence, 0, n }
end
if ARGV[12] then
  self = ' ' .. ARGV[12]
end
