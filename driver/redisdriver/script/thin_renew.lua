-- thin_renew.lua: let leases last their whole length again, on locks that nobody waits for.
--
-- What does not fit in is left to renew.lua.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  TTL in ms
-- ARGV[5]  what waiters are told of this holder, - for what it has said before
--
-- Returns for each lock HELD, which stands for renew.lua's {HELD, 0, 0}, or nothing yet.

local ARGUMENTS = 3
local HELD = 1
local replies, left = {}, 0
local records = redis.call('MGET', unpack(KEYS))

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local high, limit, h = thin_read(records[n] or '')
  local renewed = h and h.token == ARGV[3 + at] and h.expires >= now and h.expires <= now + h.ttl + grace(h.ttl)
  if renewed then
    h.ttl = math.max(tonumber(ARGV[4 + at]), h.ttl)
    h.expires = now + h.ttl + grace(h.ttl)
    h.tag = ARGV[5 + at] ~= '-' and ARGV[5 + at] or h.tag
    renewed = not redis.pcall('SET', KEYS[n], thin_record(high, limit, h), 'PX',
      int(lifetime(h.expires - now, high))).err
  end
  if renewed then
    replies[n] = HELD
  else
    left = left + 1
  end
end
if left == 0 then
  return replies
end
