-- op/release.lua: give up locks that others use, or one's place in their queues.
--
-- The short way, short/release.lua, does the same for most calls.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "unsettled tag": 1 if an ask of this token may still be under way, which must find it
--          dead; what the next holder is told of this one, - for what it has said before
--
-- Returns for each lock an error, or {status, more}: status NEITHER the token neither held it
-- nor waited, HELD it held it, WAITED it waited; more is 1 if this should be run again, because
-- the queue is longer than what one call looks at. A status alone says that there is no more, and
-- costs less. Or nothing, as acquire.lua does.

local NEITHER, HELD, WAITED = 0, 1, 2

local function handle(at)
  local unsettled, tag = match(ARGV[4 + at], '^(%d) (.*)$')
  local status, h = NEITHER, lock.mine
  lock.must = true
  expire()
  if h then
    status = HELD
    lock.told = tag ~= '-' and tag or h.tag
    if lock.mine then
      remove(h)
    end
  end
  if lock.place then
    drop_waiter(waiter_at(lock.place))
    status = WAITED
  end
  if unsettled == '1' then
    bury(ARGV[3 + at])
  end
  local more = grant()
  return more > 0 and { status, more } or status
end
