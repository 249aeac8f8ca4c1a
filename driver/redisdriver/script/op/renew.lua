-- op/renew.lua: let leases last their whole length again.
--
-- The short way, short/renew.lua, does the same for most calls.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  TTL in ms
-- ARGV[5]  what waiters are told of this holder, - for what it has said before
--
-- Returns for each lock an error, or {status, more, wanted}: status HELD the lease is renewed,
-- NEITHER this token has none; more as release.lua; wanted is 1 if somebody waits. HELD alone
-- says neither, and costs less. Or nothing, as acquire.lua does.

local NEITHER, HELD = 0, 1

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
  if h and more == 0 and not lock.head then
    return HELD
  end
  return { h and HELD or NEITHER, more, lock.head and 1 or 0 }
end
