-- mutex_renew.lua: let the lease last its whole length again.
--
-- KEYS[1]  lock
-- ARGV[4]  TTL in ms
--
-- Returns 1 renewed, 0 not held by this token.

expire()
if owner == token then
  extend(tonumber(ARGV[4]))
  return 1
end
-- An expired lease is over, even if nobody wanted the lock meanwhile.
local _, news = grant()
spread(news)
return 0
