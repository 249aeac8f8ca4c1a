-- renew.lua: let the lease last its whole length again.
--
-- KEYS[1]  lock, a string: when the lease ends, in ms since 1970
-- KEYS[2]  owner, a string: what one of us wrote into the lock, and its token
-- ARGV[1]  token
-- ARGV[2]  length of the lease in ms
-- ARGV[3]  how long the keys outlive the lease, in ms
--
-- Returns 1 renewed, 0 not held by this token.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('GET', KEYS[1])
if not value or redis.call('GET', KEYS[2]) ~= value .. ' ' .. ARGV[1] or tonumber(value) < now then
  return 0
end
-- It only lengthens: an older renewal may arrive after a newer one that asked for more.
local ends = math.max(now + ARGV[2] + 1, tonumber(value))
local text, life = string.format('%.0f', ends), string.format('%.0f', ends - now + ARGV[3])
-- The first write is one that a server does not refuse when its memory is full, and
-- after a first write it refuses no other.
redis.call('PEXPIRE', KEYS[1], life)
redis.call('SET', KEYS[1], text, 'PX', life)
redis.call('SET', KEYS[2], text .. ' ' .. ARGV[1], 'PX', life)
return 1
