-- rare.lua: what few calls need, defined when one does.
--
-- To define a function costs as much as to run a small one.

local rare

local function rarely()
  if rare then
    return rare
  end
  rare = {}

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
    keep(0) -- see end_of_key
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

local function clear_tombstones()
  if lock.dead ~= '' then
    rarely().clear_tombstones()
  end
end

local function bury(token)
  rarely().bury(token)
end
