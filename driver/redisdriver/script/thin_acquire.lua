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
-- An argument costs as much as a read, so there are few. Those who ask together mostly ask for
-- the same, and a text that several have in common is taken apart once.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "ask birth place": number of this attempt; what this token was told before, else 0
-- ARGV[5]  "ttl fences wait weight limit client owner text": TTL in ms; how many fences may be of
--          use; 1 to queue when the lock is taken; how much to take; how much there is to hold,
--          in the opinion of the request; client to push the grant to, - for none; owner on
--          whose behalf it asks, - for none; text about the holder. Only that may have spaces.
--
-- Returns for each lock "fence numbers", which stands for acquire.lua's {GRANTED, fence, 0, numbers}
-- as a list would cost more, or an error, or nothing yet.

local ARGUMENTS = 3
local replies, left, taken, wishes = {}, 0, {}, {}
local records = redis.call('MGET', unpack(KEYS))
local now_us_text = int(now_us)
if #now_us_text < 12 then
  return { err = 'ERR this is a Redis server of 32 bits, which cannot keep locks' }
end

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local wish = wishes[ARGV[5 + at]]
  if not wish then
    local ttl, fences, wait, weight, limit, client, owner, text =
      string.match(ARGV[5 + at], '^(%d+) (%d+) (%d) (%d+) (%d+) (%S+) (%S+) (.*)$')
    wish = { ttl = ttl + 0, fences = fences, wait = wait == '1', weight = weight + 0, limit = limit + 0, client = client,
      owner = owner, text = text, numbers = fences + 0, ttl_text = ttl, weight_text = weight }
    wishes[ARGV[5 + at]] = wish
  end
  if not records[n] and string.sub(ARGV[4 + at], -2) == ' 0' and redis.call('EXISTS', KEYS[n]) == 0 then
    records[n] = '0'
  end
  local high = records[n] and not taken[KEYS[n]] and not string.find(records[n], '%D')
    and tonumber(records[n]) -- nothing if somebody holds it, or it is no lock
  if high and high < 2 ^ 53 and wish.owner == '-' and wish.weight <= wish.limit then
    if not wish.length then -- what all records of this wish have in common
      local length = wish.ttl + grace(wish.ttl)
      wish.length, wish.lasts = length, int(lifetime(length, now_us))
      wish.before = ' ' .. int(wish.limit) .. ' '
      wish.within = ' ' .. int(now + length) .. ' ' .. wish.ttl_text .. ' ' .. wish.weight_text .. ' - '
      wish.after = ' ' .. int(now) .. ' ' .. wish.client .. ' ' .. wish.text
    end
    local first, numbers = numbers_after(high, wish.numbers)
    local last = first + numbers - 1
    local last_text = last == now_us and now_us_text or int(last)
    local granted = (numbers == 1 and last_text or int(first)) .. ' '
      .. (numbers == wish.numbers and wish.fences or int(numbers))
    local record = last_text .. wish.before .. ARGV[3 + at] .. wish.within .. granted .. ' ' .. last_text .. wish.after
    local reply = redis.pcall('SET', KEYS[n], record, 'PX', last <= now_us and wish.lasts or int(lifetime(wish.length, last)))
    replies[n], taken[KEYS[n]] = reply.err and reply or granted, true
  else
    left = left + 1
  end
end
if left == 0 then
  return replies
end
