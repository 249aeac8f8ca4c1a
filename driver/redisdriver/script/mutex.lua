-- mutex.lua: what holding a mutex means.
--
-- Comes after lock.lua in the scripts of a mutex. Its fields of the hash:
--
--   token    the holder's token; absent when the lock is free
--   expires  end of its lease
--   ttl      length of its lease
--   holder   "since client text": who holds, and where to reach them
--
-- KEYS[1]  lock

local owner = first_look('token')[5]
local used, limit = owner and 1 or 0, 1
local held, ends = owner == token and fence, 0

-- Make a token the holder. Returns how long the key must live then.
local function hold(who, weight, ttl, fences, client, holder)
  advance(fences)
  owner, used, ends = who, weight, now + ttl + grace(ttl)
  held = owner == token and fence
  redis.call('HSET', KEYS[1], 'token', who, 'expires', int(ends), 'ttl', int(ttl),
    'fence', int(fence), 'holder', int(now) .. ' ' .. client .. ' ' .. holder)
  return lifetime(ttl + grace(ttl))
end
