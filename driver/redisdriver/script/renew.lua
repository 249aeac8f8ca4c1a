-- renew.lua: let leases last their whole length again.
--
-- Comes after thin_renew.lua, which has the arguments.
--
-- KEYS[n]  lock
-- ARGV[4]  of each lock: TTL in ms
-- ARGV[5]  tag
--
-- Returns for each lock an error, or {status, more, wanted}: status HELD the lease is renewed,
-- NEITHER this token has none; more as release.lua; wanted is 1 if somebody waits. Or
-- nothing, as acquire.lua does.

local NEITHER = 0

local function handle(at)
  lock.must = true
  expire()
  local h = lock.mine
  if h then
    h.tag = ARGV[5 + at] ~= '-' and ARGV[5 + at] or h.tag
    extend(h, tonumber(ARGV[4 + at]))
  end
  -- An expired lease is over, even if nobody wanted the lock meanwhile; nor is a grant that
  -- follows now a renewal. And a waiter may have become next because the one before it has
  -- fallen silent.
  local more = grant()
  return { h and HELD or NEITHER, more, lock.head and 1 or 0 }
end
