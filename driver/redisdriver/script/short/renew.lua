-- short/renew.lua: let leases last their whole length again, where nobody waits, in a straight line.
--
-- No function is defined for that. What does not fit in, or looks odd, is left to op/renew.lua,
-- which would do the same: a test compares them. Records are as in lib/record.lua.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn, see op/renew.lua: token
-- ARGV[4]  TTL in ms
-- ARGV[5]  tag
--
-- Returns for each lock HELD, or nothing yet.

do
  local HELD = 1
  for n = 1, #KEYS do
    local at = (n - 1) * ARGUMENTS
    local before, high, token, expires, ttl, weight, tag, granted =
      match(records[n] or '', '^((%d+) %d+ (%S+)) (%d+) (%d+) (%d+) (%S+) (.*)$')
    if token == ARGV[3 + at] and not passed[KEYS[n]] and granted and #high <= 16 and #ttl <= 16 and high + 0 <= now_us
      and expires + 0 >= now and expires + 0 <= now + ttl + grace(ttl + 0) then
      local asked = ARGV[4 + at]
      ttl = asked + 0 > ttl + 0 and asked or ttl
      tag = ARGV[5 + at] ~= '-' and ARGV[5 + at] or tag
      local length = ttl + grace(ttl + 0)
      if not redis.pcall('SET', KEYS[n], before .. ' ' .. int(now + length) .. ' ' .. ttl .. ' ' .. weight .. ' ' .. tag .. ' ' .. granted,
        'PXAT', int(now + retention + length)).err then
        replies[n], left = HELD, left - 1
        passed[KEYS[n]] = true
      end
    end
  end
end
if left == 0 then
  return replies
end
