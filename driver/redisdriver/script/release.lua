-- release.lua: give up locks that others use, or one's place in their queues.
--
-- Comes after thin_release.lua, which has the arguments.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  1 if an ask of this token may still be under way
-- ARGV[5]  tag
--
-- Returns for each lock an error, or {status, more}: status NEITHER the token neither held it
-- nor waited, HELD it held it, WAITED it waited; more is 1 if this should be run again, because
-- the queue is longer than what one call looks at. Or nothing, as acquire.lua does.

local NEITHER, WAITED = 0, 2

local function release(token, unsettled, tag)
  local status, h = NEITHER, lock.mine
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
  if unsettled then
    bury(token)
  end
  return { status, grant() }
end

local time_left = 8 -- for so many of these in one call
for i = 1, #KEYS do
  if not replies[i] and time_left > 0 then
    n, time_left = i, time_left - 1
    local at = (i - 1) * ARGUMENTS
    local record -- of several locks some may be the same, and be changed by now
    if #KEYS == 1 then
      record = records[i]
    end
    replies[i] = load(ARGV[3 + at], record)
    if not replies[i] then
      local reply = release(ARGV[3 + at], ARGV[4 + at] == '1', ARGV[5 + at])
      replies[i] = save(true) or reply
    end
  end
end
publish()
for i = 1, #KEYS do
  replies[i] = replies[i] or false
end
return replies
