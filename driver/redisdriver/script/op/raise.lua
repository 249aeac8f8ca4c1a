-- op/raise.lua: let the lease have a larger fence than it was granted.
--
-- If others were granted the lock since, a number that lies within what they got may be theirs,
-- so then it is a new one. Numbers that this token was given before stay its own.
--
-- KEYS[n]  lock
-- ARGV[3]  token
-- ARGV[4]  the fence that it shall have at least
-- ARGV[5]  how many fences to reserve
--
-- Returns an error, or {fence, more}: that of the lease now, or 0 if this token does not hold the
-- lock; more as release.lua.

local refused = load(ARGV[3])
if refused then
  return refused
end
expire()
local h, least, fence = lock.mine, tonumber(ARGV[4]), 0
if h then
  local numbers
  fence, numbers = fences_of(h)
  if fence < least then
    local beyond = lock.high + 1
    fence = (fence + numbers == beyond or least >= beyond) and least or beyond
    numbers = math.max(tonumber(ARGV[5]), beyond - fence)
    set('high', fence + numbers - 1)
    h.granted = format('%d %d', fence, numbers) .. match(h.granted, '^%d+ %d+(.*)$')
    changed[h.field] = holder_record(h)
    keep(h.expires - now)
  end
end
local more = grant()
refused = save(true)
if refused then
  return refused
end
publish()
return { fence, more }
