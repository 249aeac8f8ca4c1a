-- short/leave.lua: give up locks that nobody else wants, in a straight line.
--
-- This is most releases, and does not even need the time, which would cost as much as what it writes. Only the
-- last fence stays, and the key keeps its end: that is the retention after the end of the lease, and after the
-- time of the last fence if the clock was set back before the lease was given, see save() in lib/lock.lua. After a
-- lease that is longer than the retention the key would stay for too long. That, and what does not fit in,
-- is left to short/release.lua. op/release.lua would do the same: a test compares them.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn, see op/release.lua: token
-- ARGV[4]  "unsettled tag"
--
-- Returns for each lock HELD, or nothing yet.

do
  local HELD, SETTLED = 1, 48
  for n = 1, #KEYS do
    local at = (n - 1) * ARGUMENTS
    local high, token, ttl = match(records[n] or '', '^(%d+) %d+ (%S+) %d+ (%d+) ')
    -- If that is refused, memory is full. The long way knows how to write all the same.
    if token == ARGV[3 + at] and passed[KEYS[n]] == nil and string.byte(ARGV[4 + at]) == SETTLED and #high <= 16 and ttl + 0 <= retention
      and not redis.pcall('SET', KEYS[n], high, 'KEEPTTL').err then
      replies[n], left = HELD, left - 1
      passed[KEYS[n]] = true
    else
      passed[KEYS[n]] = passed[KEYS[n]] or false -- others of this call are to come first
    end
  end
end
if left == 0 then
  return replies
end
