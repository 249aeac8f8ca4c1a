-- holders.lua: what it is to hold a lock, for how long, and with which fences.
--
-- All kinds of lock are one: so much of limit can be held. A mutex has 1, a reader holds 1
-- and a writer everything, and of a semaphore each holds what it asked for. On behalf of an
-- owner several tokens hold the same together: then all holders are that owner's, and what
-- they hold counts once.

-- Make a token a holder: w is what it asked for, a waiter or a request.
local function hold(w)
  local length = w.ttl + grace(w.ttl)
  local h = { token = w.token, expires = now + length, ttl = w.ttl, weight = w.weight, tag = '-', client = w.client }
  local owner = w.owner ~= '-' and w.owner or nil
  local fence, numbers, last
  if owner and owner == lock.owner then
    fence, numbers, last = fences_of(lock.holders[1])
    numbers = 1 -- they have one, of all of them
  else
    fence, numbers = numbers_after(lock.high, owner and 1 or w.fences + 0)
    last = fence + numbers - 1
    set('high', last)
    if owner then
      lock.owner, changed.owner = owner, owner
    end
    lock.used = lock.used + h.weight
  end
  h.numbers = string.format('%d %d', fence, numbers)
  h.granted = h.numbers .. string.format(' %d %d ', last, now) .. w.client .. ' ' .. w.text -- %s ends at a NUL
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
