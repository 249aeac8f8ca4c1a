-- lock_raise.lua: let the lease have a larger fence than it was granted.
--
-- KEYS[1]  lock
-- ARGV[4]  the fence that it shall have at least
-- ARGV[5]  how many fences to reserve
--
-- Returns {fence}, that of the lease now, or {0} if this token does not hold the lock.

expire()
if held then
  if held < tonumber(ARGV[4]) then
    raise(tonumber(ARGV[4]), tonumber(ARGV[5]))
  end
  return { held }
end
local _, news = grant()
spread(news)
return { 0 }
