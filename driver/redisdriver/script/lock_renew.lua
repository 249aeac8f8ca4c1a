-- lock_renew.lua: let the lease last its whole length again.
--
-- KEYS[1]  lock
-- ARGV[4]  TTL in ms
-- ARGV[5]  what waiters are told of this holder, empty for nothing
--
-- Returns 1 renewed, 2 renewed and somebody waits, 0 not held by this token.

expire()
if held then
  extend(tonumber(ARGV[4]))
  if ARGV[5] ~= '' and (speaker ~= token or carrier ~= ARGV[5]) then
    redis.call('HSET', KEYS[1], 'carrier', token .. ' ' .. ARGV[5])
  end
  return head and 2 or 1
end
-- An expired lease is over, even if nobody wanted the lock meanwhile.
local _, news = grant()
spread(news)
return 0
