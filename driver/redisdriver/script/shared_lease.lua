-- shared_lease.lua: how the leases on parts of a lock go on and end.
--
-- Comes after queue.lua in the scripts of such locks.
--
-- KEYS[1]  lock

-- Give back some of what is held.
local function lower(weight)
  used = used - weight
  if used > 0 then
    redis.call('HSET', KEYS[1], 'used', int(used))
  else
    redis.call('HDEL', KEYS[1], 'used', 'earliest', 'span', 'notice')
  end
end

-- Take a token, or an owner, from the holders.
local function forget(who)
  redis.call('HDEL', KEYS[1], 'h:' .. who)
  if disband(who) or who == speaker then
    redis.call('HDEL', KEYS[1], 'carrier')
  end
end

-- End the lease of this token.
local function free()
  forget(self)
  lower(me.weight)
  me, held = nil, nil
end

-- Call visit with each holder.
local function holders(visit)
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    local who = string.match(fields[i], '^h:(.*)$')
    if who then
      visit(who, holder_read(fields[i + 1]))
    end
  end
end

-- Look at every lease, end those whose time is over, and find out when the next one
-- may be. As for a mutex, no lease can have more time left than its whole length.
local function sweep()
  local sum, first = 0, nil
  keep(retention)
  holders(function(who, h)
    local longest = now + h.ttl + grace(h.ttl)
    if h.expires < now then
      forget(who)
      if who == self then
        me, held = nil, nil
      end
      return
    end
    if h.expires > longest then
      h.expires = longest
      holder_write(who, h)
    end
    if who == self then
      me = h
    end
    sum = sum + h.weight
    if not first or h.expires < first then
      first, span = h.expires, longest - now
    end
  end)
  lower(used - sum)
  if first then
    ends = first
    redis.call('HSET', KEYS[1], 'earliest', int(ends), 'span', int(span))
  end
end

-- Read the rest, and end the leases of holders whose time is over. To look at them all
-- takes time, so there is a time before which none can be over. Renewals do not move
-- it; so there is one sweep in about 2/3 of the shortest TTL, however many they are.
local function expire()
  look()
  if self ~= token then
    me = holder_read(redis.call('HGET', KEYS[1], 'h:' .. self))
    held, numbers = me and me.fence, me and me.numbers
  end
  if used > 0 and (ends < now or ends > now + span) then
    sweep()
  end
end

-- Every "you hold it" gives the full TTL again, as for a mutex.
local function extend(ttl)
  ttl = math.max(ttl, me.ttl)
  keep(lifetime(ttl + grace(ttl)))
  me.expires, me.ttl = math.max(me.expires, now + ttl + grace(ttl)), ttl
  holder_write(token, me)
end

-- How much somebody holds, false for nothing.
local function weight_of(who)
  local h = holder_read(redis.call('HGET', KEYS[1], 'h:' .. who))
  return h and h.expires >= now and h.weight
end

-- Take that from them, for another who gets it at once.
local function vacate(who)
  used = used - weight_of(who)
  forget(who)
end

-- Let the lease of an owner end at another time, that of one with this TTL. Nobody holds
-- anything beside it.
local function last(expires, ttl)
  keep(lifetime(expires - now))
  me.expires, me.ttl = expires, ttl
  holder_write(self, me)
  ends, span = expires, ttl + grace(ttl)
  redis.call('HSET', KEYS[1], 'earliest', int(ends), 'span', int(span))
end

-- How long the lease of the last holder can go on unless it is renewed, false if that is not
-- known: to look at all of them takes time.
local function longest()
  return used == 0 and 0
end

-- Give this token's lease a larger fence, with so many numbers. If others were granted the
-- lock since, one that lies within what they got may be theirs, so then it is a new one.
local function raise(least, fences)
  keep(retention)
  local beyond = fence + reserved
  local first = (held == fence or least >= beyond) and least or beyond
  reserve(first, math.max(fences, beyond - first))
  keep(lifetime(0))
  redis.call('HSET', KEYS[1], 'fence', int(fence))
  me.fence, me.numbers, me.last, held = fence, reserved, fence + reserved - 1, fence
  holder_write(self, me)
end

-- Give this token's lease more numbers: the first of them, and how many. They are those of
-- the last grant then: others may have been granted the lock since this token was.
local function add(fences)
  reserve(take(fences))
  keep(lifetime(0))
  redis.call('HSET', KEYS[1], 'fence', int(fence))
  me.last = fence + reserved - 1
  holder_write(self, me)
  return fence, reserved
end
