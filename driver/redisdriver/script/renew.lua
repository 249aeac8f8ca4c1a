-- renew.lua: let leases last their whole length again.
--
-- Comes after thin_renew.lua, which has the arguments.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  TTL in ms
-- ARGV[5]  tag
--
-- Returns for each lock an error, or {status, more, wanted}: status HELD the lease is renewed,
-- NEITHER this token has none; more as release.lua; wanted is 1 if somebody waits. Or
-- nothing, as acquire.lua does.

local NEITHER = 0

local function renew(ttl, tag)
  expire()
  local h = lock.mine
  if h then
    h.tag = tag ~= '-' and tag or h.tag
    extend(h, ttl)
  end
  -- An expired lease is over, even if nobody wanted the lock meanwhile; nor is a grant that
  -- follows now a renewal. And a waiter may have become next because the one before it has
  -- fallen silent.
  local more = grant()
  return { h and HELD or NEITHER, more, lock.head and 1 or 0 }
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
      local reply = renew(tonumber(ARGV[4 + at]), ARGV[5 + at])
      replies[i] = save(true) or reply
    end
  end
end
publish()
for i = 1, #KEYS do
  replies[i] = replies[i] or false
end
return replies
