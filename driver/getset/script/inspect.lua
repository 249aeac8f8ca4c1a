-- inspect.lua: who holds the lock, and for how long.
--
-- KEYS[1]  lock, a string: when the lease ends, in ms since 1970
-- KEYS[2]  owner, a string: what one of us wrote into the lock, and its token
--
-- Returns {'', left, holder}: the rest of the lease in ms, and the token if the holder is one of
-- us, else at most 256 digits of the end. If nobody holds the lock, {}.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('GET', KEYS[1])
if value and not string.find(value, '^%d+$') then
  return redis.error_reply('WRONGTYPE the lock has a value that is no time in ms')
end
if not value or tonumber(value) < now then
  return {}
end
local ours = redis.call('GET', KEYS[2]) or ''
local holder = string.sub(value, 1, 256)
if string.sub(ours, 1, #value + 1) == value .. ' ' then
  holder = string.sub(ours, #value + 2)
end
return { '', math.min(tonumber(value) - now, 9e15), holder }
