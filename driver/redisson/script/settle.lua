-- settle.lua: the tombstones of tokens. Needs clock.lua.

-- settle notes in KEYS[2], for ms, that the tokens were given up.
local function settle(tokens, ms)
  -- The first write is one that a server does not refuse when its memory is full, and
  -- after a first write it refuses no other.
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  for _, token in ipairs(tokens) do
    redis.call('ZADD', KEYS[2], string.format('%.0f', now + ms), token)
  end
  redis.call('PEXPIRE', KEYS[2], ms)
end
