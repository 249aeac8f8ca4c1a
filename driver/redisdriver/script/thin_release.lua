-- thin_release.lua: give up locks that nobody waits for, or remembers anything of.
--
-- What does not fit in is left to release.lua.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  1 if an ask of this token may still be under way: it must find it dead
-- ARGV[5]  what the next holder is told of this one, - for what it has said before
--
-- Returns for each lock {HELD, 0}, as release.lua does, or nothing yet.

local ARGUMENTS = 3
local HELD = 1
local replies, records, left = {}, {}, 0

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local record = redis.call('MGET', KEYS[n])[1]
  local high, token
  if record then
    high, token = string.match(record, '^(%d+) %d+ (%S+)')
  end
  -- If this is refused, memory is full. The long way knows how to write all the same.
  if token == ARGV[3 + at] and ARGV[4 + at] == '0'
    and not redis.pcall('SET', KEYS[n], high, 'PX', int(lifetime(0, tonumber(high)))).err then
    replies[n] = { HELD, 0 }
  else
    records[n], left = record, left + 1
  end
end
if left == 0 then
  return replies
end
