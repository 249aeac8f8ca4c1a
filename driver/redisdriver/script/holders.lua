-- holders.lua: what it is to hold a lock, for how long, and with which fences.
--
-- All kinds of lock are one: so much of limit can be held. A mutex has 1, a reader holds 1
-- and a writer everything, and of a semaphore each holds what it asked for. On behalf of an
-- owner several tokens hold the same together: then all holders are that owner's, and what
-- they hold counts once.

-- Make a token a holder: w is what it asked for, a waiter or a request.
local function hold(w)
  local h = { token = w.token, client = w.client, text = w.text, weight = w.weight, ttl = w.ttl, since = now, tag = '-',
    expires = now + w.ttl + grace(w.ttl) }
  local first = w.owner ~= '-' and w.owner == lock.owner and lock.count > 0 and lock.holders[1]
  if first then
    h.fence, h.numbers, h.last = first.fence, 1, first.last -- they have one number, of all of them
  else
    h.fence, h.numbers = numbers_after(lock.high, w.owner == '-' and w.fences or 1)
    h.last = h.fence + h.numbers - 1
    lock.high, lock.owner, lock.used = h.last, w.owner, lock.used + h.weight
  end
  lock.count = lock.count + 1
  if lock.count == 1 or h.expires < lock.earliest then
    lock.earliest, lock.span = h.expires, h.expires - now
  end
  seat_holder(h, lock.count)
  keep(h.expires - now)
  return h
end

-- Make a holder none. The last one takes its slot.
local function remove(h)
  local last = holder_at(lock.count)
  changed['t:' .. h.token], changed['h:' .. int(lock.count)] = false, false
  if last ~= h then
    seat_holder(last, h.slot)
  end
  lock.holders[lock.count] = nil
  lock.count = lock.count - 1
  if lock.count == 0 then
    lock.used, lock.earliest, lock.span, lock.owner = 0, 0, 0, '-'
  elseif lock.owner == '-' then
    lock.used = lock.used - h.weight
  end
  if lock.mine == h then
    lock.mine = nil
  end
end

-- The lease of the only holder is the earliest to end, and that of others may be.
local function ends(h)
  if lock.count == 1 or h.expires < lock.earliest then
    lock.earliest, lock.span = h.expires, h.ttl + grace(h.ttl)
  end
end

-- End the leases whose time is over. To look at them all takes time, so there is a time
-- before which none can be over. Renewals do not move it, but for a single holder; so there
-- is one look in about 2/3 of the shortest TTL, however many they are.
--
-- No lease can have more time left than its whole length: if one has, the server's clock was
-- set back, and the lock must not stay blocked for as long as that.
local function expire()
  if lock.count == 0 or lock.earliest >= now and lock.earliest <= now + lock.span then
    return
  end
  local slot, first, span = 1, nil, 0
  while slot <= lock.count do
    local h = holder_at(slot)
    local longest = now + h.ttl + grace(h.ttl)
    if h.expires < now then
      remove(h) -- and look at the one that takes its slot
    else
      if h.expires > longest then
        h.expires = longest
        put_holder(h)
      end
      if not first or h.expires < first then
        first, span = h.expires, longest - now
      end
      slot = slot + 1
    end
  end
  if first then
    lock.earliest, lock.span = first, span
  end
end

-- Every "you hold it" gives the full TTL again, because the holder's trust starts from the
-- ask that this answers. It takes nothing away: a late ask knows nothing of a renewal for
-- longer.
local function extend(h, ttl)
  h.ttl = math.max(ttl, h.ttl)
  h.expires = math.max(h.expires, now + h.ttl + grace(h.ttl))
  put_holder(h)
  ends(h)
  keep(h.expires - now)
end

-- A token that was released while one of its asks was still under way. That ask must not take
-- the lock when it arrives: nobody would ever release it.
local function has_tombstone(token)
  return string.find(lock.dead, '\n' .. token .. ' ', 1, true) ~= nil
end

local function set_tombstones(dead)
  if dead ~= lock.dead then
    lock.dead = dead
    changed.dead = dead ~= '' and dead
  end
end

-- Throw away old tombstones. The oldest are the first.
local function clear_tombstones()
  local from = 1
  while true do
    local _, last, till = string.find(lock.dead, '^\n%S+ (%d+)', from)
    if not till or tonumber(till) > now then
      break
    end
    from = last + 1
  end
  set_tombstones(string.sub(lock.dead, from))
end

-- The tombstone lasts as long as the key. A storm of cancellations must stay cheap, and every
-- script reads them all; so there is room for about 150. Without its tombstone a straggler may
-- be granted the lock, and its client gives it back when it hears of that, or it costs the
-- others a TTL.
local function bury(token)
  clear_tombstones()
  local dead = lock.dead
  local first, last = string.find(dead, '\n' .. token .. ' ', 1, true)
  if first then
    local next = string.find(dead, '\n', last, true)
    dead = string.sub(dead, 1, first - 1) .. (next and string.sub(dead, next) or '')
  end
  dead = dead .. '\n' .. token .. ' ' .. int(now + retention)
  while #dead > 8192 do
    dead = string.gsub(dead, '^\n[^\n]+', '')
  end
  set_tombstones(dead)
  keep(retention / 2)
end
