-- lock_extend.lua: let the lease last its whole length again, and have more fences for it,
-- unless others wait.
--
-- KEYS[1]  lock
-- ARGV[4]  TTL in ms
-- ARGV[5]  how many fences to reserve
--
-- Returns {0, 0} not held by this token, {1, fence} extended, with the first of the new
-- fences, {2, 0} renewed, but somebody waits.

expire()
local extended = { 0, 0 }
if held then
  extend(tonumber(ARGV[4]))
end
local _, news = grant() -- which also drops who waits no more
if held and head then
  extended = { 2, 0 }
elseif held then
  advance(tonumber(ARGV[5]))
  redis.call('HSET', KEYS[1], 'fence', int(fence))
  extended = { 1, fence }
end
spread(news)
return extended
