-- mutex.lua: what holding a mutex means.
--
-- Comes after lock_life.lua in the scripts of a mutex. Its fields of the hash:
--
--   token    the holder's token, or its owner, see owner.lua; absent when the lock is free
--   expires  end of its lease
--   ttl      length of its lease
--   holder   "since client text": who holds, and where to reach them
--
-- KEYS[1]  lock

local occupant = seen[5]
local used, limit = occupant and 1 or 0, 1
local held, numbers, ends = occupant == token and fence, reserved, 0

-- Make a token, or an owner, the holder. Returns how long the key must live then.
local function hold(who, weight, ttl, fences, client, holder)
  reserve(take(fences))
  occupant, used, ends = who, weight, now + ttl + grace(ttl)
  held, numbers = occupant == self and fence, reserved
  redis.call('HSET', KEYS[1], 'token', who, 'expires', int(ends), 'ttl', int(ttl),
    'fence', int(fence), 'holder', int(now) .. ' ' .. client .. ' ' .. holder)
  heed(who, client)
  return lifetime(ttl + grace(ttl))
end
