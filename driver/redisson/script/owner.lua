-- owner.lua: what an owner holds. Needs clock.lua.
--
-- An owner holds by tokens. Each has a lease of its own in KEYS[3], a zset of the ends of
-- leases; the lock, which can have one end only, has the last of them.

-- prune drops the tokens whose lease is over.
local function prune()
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
end

-- hold lets the token in ARGV[1] hold for the time in ARGV[3] from now on. It only
-- lengthens: asks and renewals may come in another order than they were sent.
local function hold()
  redis.call('ZADD', KEYS[3], 'GT', string.format('%.0f', now + ARGV[3]), ARGV[1])
end

-- write brings the lock up to date for the owner in ARGV[2].
local function write()
  local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
  local ends = string.format('%.0f', tonumber(last))
  redis.call('PEXPIREAT', KEYS[3], ends)
  redis.call('HSET', KEYS[1], ARGV[2], redis.call('ZCARD', KEYS[3]))
  redis.call('PEXPIREAT', KEYS[1], ends)
end
