-- op/extend.lua: let the lease last its whole length again, and have more fences for it.
--
-- KEYS[n]  lock
-- ARGV[3]  token
-- ARGV[4]  TTL in ms
-- ARGV[5]  how many fences may be of use
--
-- Returns an error, or {status, fence, more, numbers}: status NEITHER the token does not hold it,
-- HELD the lease has so many new fences from that on, WANTED the same, but somebody waits; more
-- as release.lua.

local NEITHER, HELD, WANTED = 0, 1, 2

local refused = load(ARGV[3])
if refused then
  return refused
end
expire()
local h = lock.mine
if h then
  extend(h, tonumber(ARGV[4]))
end
local more = grant() -- which also drops those who wait no more
local status, first, numbers = NEITHER, 0, 0
if h then
  status = lock.head and WANTED or HELD
  first, numbers = numbers_after(lock.high, tonumber(ARGV[5]))
  set('high', first + numbers - 1)
  local fence, granted = fences_of(h)
  set_fences(h, fence, granted, lock.high)
  changed[h.field] = holder_record(h)
end
refused = save(true)
if refused then
  return refused
end
publish()
return { status, first, more, numbers }
