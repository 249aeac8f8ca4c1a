-- op/downgrade.lua: give up some of what a token holds and keep the rest.
--
-- KEYS[n]  lock
-- ARGV[3]  token
-- ARGV[4]  how much to keep. A script that comes late, or again, changes nothing.
--
-- Returns an error, or {status, more}: status HELD the token holds no more than that now, NEITHER
-- it holds nothing, OWNED it holds on behalf of an owner, others of whom may count on all of it;
-- more as release.lua.

local NEITHER, HELD, OWNED = 0, 1, 2

local refused = load(ARGV[3])
if refused then
  return refused
end
expire()
local h, status = lock.mine, NEITHER
if h and lock.owner then
  return { OWNED, 0 }
elseif h then
  local excess = h.weight - tonumber(ARGV[4])
  if excess > 0 then
    h.weight, lock.used = h.weight - excess, lock.used - excess
    changed[h.field] = holder_record(h)
  end
  status = HELD
end
local more = grant()
refused = save(true)
if refused then
  return refused
end
publish()
return { status, more }
