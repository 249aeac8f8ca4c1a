-- lease.lua: how a lease is made to last longer.
--
-- KEYS[n]  lock

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
