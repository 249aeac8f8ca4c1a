-- lock_raise.lua: let the lease have a larger fence than it was granted.
--
-- KEYS[1]  lock
-- ARGV[4]  the fence that it shall have at least
-- ARGV[5]  how many fences to reserve
--
-- Returns {fence, more}: that of the lease now, or 0 if this token does not hold the lock.
-- more as in grant in queue.lua.

expire()
if held and held < tonumber(ARGV[4]) then
  raise(tonumber(ARGV[4]), tonumber(ARGV[5]))
end
local fence_now = held or 0 -- a grant has its own
local more, news = grant()
spread(news)
return { fence_now, more }
