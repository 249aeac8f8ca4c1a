-- rare.lua: what few calls need, defined when one does.
--
-- KEYS[n]  lock

local rare

function rarely()
  if rare then
    return rare
  end
  rare = {}

  -- Free the script of the limit of memory: once its first write was one that needs none, it may
  -- write anything.
  function rare.write()
    local ttl = redis.call('PTTL', KEYS[n])
    if ttl > 0 then
      redis.call('PEXPIRE', KEYS[n], int(ttl))
    else
      redis.call('PERSIST', KEYS[n])
    end
  end

  -- Others were given to the holder beyond those that it was granted.
  function rare.set_fences(h, fence, numbers, last)
    h.granted = string.format('%d %d %d', fence, numbers, last) .. string.match(h.granted, '^%d+ %d+ %d+(.*)$')
  end

  -- Look at every lease. None can have more time left than its whole length: if one has, the
  -- server's clock was set back, and the lock must not stay blocked for as long as that.
  function rare.expire()
    local slot, first, span = 1, nil, 0
    while slot <= lock.count do
      local h = holder_at(slot)
      local longest = now + h.ttl + grace(h.ttl)
      if h.expires < now then
        remove(h) -- and look at the one that takes its slot
      else
        if h.expires > longest then
          h.expires = longest
          changed[h.field] = holder_record(h)
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

  local function set_tombstones(dead)
    if dead ~= lock.dead then
      lock.dead = dead
      changed.dead = dead ~= '' and dead
    end
  end

  -- Throw away old tombstones. The oldest are the first.
  function rare.clear_tombstones()
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
  function rare.bury(token)
    rare.clear_tombstones()
    local dead = lock.dead
    local first, last = string.find(dead, '\n' .. token .. ' ', 1, true)
    if first then
      local next = string.find(dead, '\n', last, true)
      dead = string.sub(dead, 1, first - 1) .. (next and string.sub(dead, next) or '')
    end
    dead = dead .. '\n' .. token .. ' ' .. int(now + retention)
    while #dead > 8192 do
      dead = string.gsub(dead, '^\n*[^\n]*', '') -- something, even if it is no tombstone
    end
    set_tombstones(dead)
    keep(0) -- see save
  end

  -- A token that was released while one of its asks was still under way. That ask must not take
  -- the lock when it arrives: nobody would ever release it.
  function rare.has_tombstone(token)
    return string.find(lock.dead, '\n' .. token .. ' ', 1, true) ~= nil
  end

  -- The tokens of the owner that has just got the lock need not wait for each other. They come
  -- in when they ask, so they are told to.
  function rare.call_cotokens(owner, place, left)
    for p = place, math.min(lock.tail, place + left) do
      local w = waiter_at(p)
      if w and w.owner == owner then
        tell(w.client, 'ask ' .. w.token, w.token)
      end
    end
  end

  -- Nobody is told when a lease runs out. The waiter that is next looks again at that time,
  -- which the answer to its ask has named. A waiter that became next after its ask is told to
  -- ask once more, unless its next heartbeat comes before that time. If its client seems to
  -- have gone, so is the waiter behind it.
  --
  -- A script that has a lease end earlier than others were told forgets who is informed.
  function rare.inform()
    local place, left = lock.skip or lock.head, LOOKED_AT
    while place and place <= lock.tail and left > 0 do
      local w = waiter_at(place)
      left = left - 1
      if w and w.alive - patience(w.ttl) + w.ttl / 3 <= lock.earliest then
        return
      elseif w then
        tell(w.client, 'ask ' .. w.token, w.token)
        if not seems_gone(w) then
          return
        end
      end
      place = place + 1
    end
  end

  -- Whether a waiter is next if those before it, at most a few, are passed over.
  function rare.is_next(place)
    local first = lock.skip or lock.head
    if place - first > NEAR then
      return false
    end
    for p = first, place - 1 do
      local w = waiter_at(p)
      if w and not seems_gone(w) then
        return false
      end
    end
    return true
  end

  return rare
end

-- End the leases whose time is over. To look at them all takes time, so there is a time before
-- which none can be over. Renewals do not move it, but for a single holder; so there is one look
-- in about 2/3 of the shortest TTL, however many they are.
local function expire()
  if lock.count > 0 and (lock.earliest < now or lock.earliest > now + lock.span) then
    rarely().expire()
  end
end
