-- lock_extend.lua: let the lease last its whole length again, and have more fences for it,
-- unless others wait.
--
-- KEYS[1]  lock
-- ARGV[4]  TTL in ms
-- ARGV[5]  how many fences to reserve
--
-- Returns {0, 0, more} not held by this token, {1, fence, 0} extended, with the first of
-- the new fences, {2, 0, more} renewed, but somebody waits. more as in grant in queue.lua.

expire()
if held then
  extend(tonumber(ARGV[4]))
end
local renewed = held -- and not granted just now
local more, news = grant() -- which also drops those who wait no more
local extended = { renewed and 2 or 0, 0, more }
if renewed and not head then
  advance(tonumber(ARGV[5]))
  redis.call('HSET', KEYS[1], 'fence', int(fence))
  extended = { 1, fence, 0 }
end
spread(news)
return extended
