-- shared_release.lua: give up a part of a lock, or one's place in its queue.
--
-- This part comes before shared_look.lua, as that of mutex_release.lua does.
--
-- KEYS[1]  lock
-- ARGV[1]  token
-- ARGV[3]  retention in ms
-- ARGV[4]  1 if an ask of this token may still be under way: it must find it dead
-- ARGV[5]  what the next holder is told of this one, empty for what it has said before
--
-- Returns as mutex_release.lua does.

local first = redis.call('HMGET', KEYS[1], 'h:' .. ARGV[1], 'head', 'used', 'carrier', 'resized')
if first[1] and not first[2] and ARGV[4] == '0' and not first[4] then
  local left = first[3] - string.match(first[1], '^%d+')
  if left > 0 then
    redis.call('HDEL', KEYS[1], 'h:' .. ARGV[1])
    redis.call('HSET', KEYS[1], 'used', string.format('%.0f', left))
    return 1
  elseif not first[5] and redis.call('PTTL', KEYS[1]) <= ARGV[3] * 1 then
    redis.call('HDEL', KEYS[1], 'h:' .. ARGV[1], 'used', 'earliest', 'span', 'notice')
    return 1
  end
end
