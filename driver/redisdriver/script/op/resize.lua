-- op/resize.lua: set the limit. It holds until the lock has not been used for the retention,
-- whatever requests say.
--
-- KEYS[n]  lock
-- ARGV[3]  token of this change: its tombstone keeps a repeat from undoing a later one
-- ARGV[4]  limit
--
-- Returns an error, or {HELD, more}; more as release.lua.

local HELD = 1

local refused = load(ARGV[3])
if refused then
  return refused
end
expire()
if not has_tombstone(ARGV[3]) then
  set('limit', tonumber(ARGV[4]))
  set('resized', 1)
  -- From now on the key outlives leases by the whole retention, see save.
  for slot = 1, lock.count do
    keep(holder_at(slot).expires - now)
  end
  bury(ARGV[3])
end
local more = grant()
refused = save(false)
if refused then
  return refused
end
publish()
return { HELD, more }
