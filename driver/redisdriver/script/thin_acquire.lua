-- thin_acquire.lua: take locks that nobody holds, waits for, or remembers anything of.
--
-- Such a lock is absent, or a string: "high", the last fence that was given. Held by one
-- token, to which the last fences were given, it is
--
--   high limit token expires ttl weight tag fence numbers last since client text
--
-- for which see record.lua. This is all that most locks ever are: read once, written once.
-- What does not fit in is left to acquire.lua.
--
-- KEYS[n]   lock
-- ARGV[3]   of each lock these in turn: token
-- ARGV[4]   ask: number of this attempt
-- ARGV[5]   TTL in ms
-- ARGV[6]   how many fences may be of use
-- ARGV[7]   1 to queue when the lock is taken
-- ARGV[8]   client to push the grant to, - for none
-- ARGV[9]   text about the holder
-- ARGV[10]  birth and
-- ARGV[11]  place that this token was told before, else 0
-- ARGV[12]  weight: how much to take
-- ARGV[13]  limit: how much there is to hold, in the opinion of the request
-- ARGV[14]  owner on whose behalf it asks, without spaces, - for none
--
-- Returns for each lock, as acquire.lua does, {GRANTED, fence, 0, numbers} or an error, or nothing
-- yet.

local ARGUMENTS = 12
local GRANTED = 3
local replies, records, left = {}, {}, 0
local now_text, now_us_text = int(now), int(now_us)
if tonumber(now_us_text) ~= now_us then
  return { err = 'ERR this is a Redis server of 32 bits, which cannot keep locks' }
end

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local record = redis.call('MGET', KEYS[n])[1]
  if not record and ARGV[11 + at] == '0' and redis.call('EXISTS', KEYS[n]) == 0 then
    record = '0'
  end
  local high = record and string.match(record, '^%d+$') -- nothing if somebody holds it
  if high and ARGV[14 + at] == '-' and tonumber(ARGV[12 + at]) <= tonumber(ARGV[13 + at]) then
    local first, numbers = numbers_after(tonumber(high), tonumber(ARGV[6 + at]))
    local last, ttl = first + numbers - 1, tonumber(ARGV[5 + at])
    local length = ttl + grace(ttl)
    local last_text = last == now_us and now_us_text or int(last)
    local first_text = numbers == 1 and last_text or int(first)
    local reply = redis.pcall('SET', KEYS[n], last_text .. ' ' .. ARGV[13 + at] .. ' ' .. ARGV[3 + at] .. ' '
      .. int(now + length) .. ' ' .. ARGV[5 + at] .. ' ' .. ARGV[12 + at] .. ' - ' .. first_text .. ' ' .. int(numbers)
      .. ' ' .. last_text .. ' ' .. now_text .. ' ' .. ARGV[8 + at] .. ' ' .. ARGV[9 + at], 'PX', int(lifetime(length, last)))
    replies[n] = reply.err and reply or { GRANTED, first, 0, numbers }
  else
    records[n], left = record, left + 1
  end
end
if left == 0 then
  return replies
end
