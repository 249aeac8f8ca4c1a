-- lock_extend.lua: let the lease last its whole length again, and have more fences for it.
--
-- KEYS[1]  lock
-- ARGV[4]  TTL in ms
-- ARGV[5]  how many fences may be of use
--
-- Returns {0, 0, more} not held by this token, {1, fence, 0, n} extended, with n new fences
-- from that on, {2, fence, more, n} the same, but somebody waits. more as in grant in
-- queue.lua.

expire()
if held then
  extend(tonumber(ARGV[4]))
end
local renewed = held -- and not granted just now
local more, news = grant() -- which also drops those who wait no more
local first, n = 0, 0
if renewed then
  first, n = add(tonumber(ARGV[5]))
end
spread(news)
return { renewed and (head and 2 or 1) or 0, first, more, n }
