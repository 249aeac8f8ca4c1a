-- lib/expiry.lua: leases whose time is over.

-- Look at every lease. None can have more time left than its whole length: if one has, the
-- server's clock was set back, and the lock must not stay blocked for as long as that.
local function expire_each()
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

-- End the leases whose time is over. To look at them all takes time, so there is a time before
-- which none can be over. Renewals do not move it, but for a single holder; so there is one look
-- in about 2/3 of the shortest TTL, however many they are.
local function expire()
  if lock.count > 0 and (lock.earliest < now or lock.earliest > now + lock.span) then
    expire_each()
  end
end
