-- lock_renew.lua: let the lease last its whole length again.
--
-- ARGV[4]  TTL in ms
--
-- Returns 1 renewed, 0 not held by this token.

expire()
if held then
  extend(tonumber(ARGV[4]))
  return 1
end
-- An expired lease is over, even if nobody wanted the lock meanwhile.
local _, news = grant()
spread(news)
return 0
