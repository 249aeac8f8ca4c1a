-- thin_release.lua: give up locks that nobody waits for, or remembers anything of.
--
-- What does not fit in is left to release.lua.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "unsettled tag": 1 if an ask of this token may still be under way, which must find it
--          dead; what the next holder is told of this one, - for what it has said before
--
-- Returns for each lock HELD, as release.lua does where there is no more to do, or nothing yet.

local ARGUMENTS = 2
local HELD = 1
local replies, left = {}, 0
local records = redis.call('MGET', unpack(KEYS))
local lasts

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local high, token
  if records[n] and string.byte(ARGV[4 + at]) == 48 then -- 0
    high, token = string.match(records[n], '^(%d+) %d+ (%S+)')
  end
  local ms
  if token == ARGV[3 + at] then
    lasts = lasts or int(lifetime(0, now_us))
    ms = high + 0 <= now_us and lasts or int(lifetime(0, high + 0))
  end
  -- If this is refused, memory is full. The long way knows how to write all the same.
  if ms and not redis.pcall('SET', KEYS[n], high, 'PX', ms).err then
    replies[n] = HELD
  else
    left = left + 1
  end
end
if left == 0 then
  return replies
end
