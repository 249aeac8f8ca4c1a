-- lib/hold.lua: what it is to hold a lock, for how long, and with which fences.
--
-- All kinds of lock are one: so much of limit can be held. A mutex has 1, a reader holds 1
-- and a writer everything, and of a semaphore each holds what it asked for. On behalf of an
-- owner several tokens hold the same together: then all holders are that owner's, and what
-- they hold counts once.

-- Numbers for so many fences, or as many as there are, if high was the last one given: the
-- first of them, and how many.
--
-- They lie beyond the last that was given, and not beyond the time in us. So nobody is given
-- numbers faster than the clock gives new ones, and those that are given after the key was
-- lost, by this server or another, are larger than all before. A key that does not know what
-- was given before gives the time alone: what lies before it may have been given. If the
-- clock was set back, numbers go on one at a time.
--
-- The wrong version has each grant reserve as many as were asked for, from the time on. Those
-- of quick grants run ahead of the clock, and what another server grants after a failover is
-- smaller.
local function numbers_after(high, fences)
  local first = now_us + 1 - (high > 0 and fences or 1)
  if first <= high then
    first = high + 1
  end
  return first, first < now_us and now_us + 1 - first or 1
end

-- Make a token a holder: w is what it asked for, a waiter or a request.
local function hold(w)
  local length = w.ttl + grace(w.ttl)
  local h = { token = w.token, expires = now + length, ttl = w.ttl, weight = w.weight, tag = '-', client = w.client }
  local owner = w.owner ~= '-' and w.owner or nil
  local fence, numbers
  if owner and owner == lock.owner then
    fence, numbers = fences_of(lock.holders[1]), 1 -- they have one, of all of them
  else
    fence, numbers = numbers_after(lock.high, owner and 1 or w.fences + 0)
    set('high', fence + numbers - 1)
    if owner then
      lock.owner, changed.owner = owner, owner
    end
    lock.used = lock.used + h.weight
  end
  h.numbers = format('%d %d', fence, numbers)
  h.granted = h.numbers .. format(' %d ', now) .. w.client .. ' ' .. w.text -- %s ends at a NUL
  lock.count = lock.count + 1
  if lock.count == 1 or h.expires < lock.earliest then
    lock.earliest, lock.span = h.expires, length
  end
  seat_holder(h, lock.count)
  keep(length)
  return h
end

-- Make a holder none. The last one takes its slot.
local function remove(h)
  local last = holder_at(lock.count)
  changed['t:' .. h.token], changed[last.field] = false, false
  if last ~= h then
    seat_holder(last, h.slot)
  end
  lock.holders[lock.count] = nil
  lock.count = lock.count - 1
  if lock.count == 0 then
    lock.used, lock.earliest, lock.span = 0, 0, 0
    if lock.owner then
      lock.owner, changed.owner = nil, false
    end
  elseif not lock.owner then
    lock.used = lock.used - h.weight
  end
  if lock.mine == h then
    lock.mine = nil
  end
end

-- Every "you hold it" gives the full TTL again, because the holder's trust starts from the
-- ask that this answers. It takes nothing away: a late ask knows nothing of a renewal for
-- longer.
local function extend(h, ttl)
  h.ttl = math.max(ttl, h.ttl)
  h.expires = math.max(h.expires, now + h.ttl + grace(h.ttl))
  changed[h.field] = holder_record(h)
  -- The lease of the only holder is the earliest to end, and that of others may be.
  if lock.count == 1 or h.expires < lock.earliest then
    lock.earliest, lock.span = h.expires, h.ttl + grace(h.ttl)
  end
  keep(h.expires - now)
end
