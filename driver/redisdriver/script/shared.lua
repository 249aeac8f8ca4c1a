-- shared.lua: what holding a part of a lock means: permits of a semaphore, or a read
-- or write lock.
--
-- Comes after lock_life.lua in the scripts of these kinds. A reader holds 1, a writer
-- everything. The fields of the hash:
--
--   limit      how much there is to hold, for as long as anybody holds or waits
--   resized    1 if resize has set the limit: it is no longer for requests to say
--   used       how much is held; absent when nothing is
--   earliest   no lease ends before this time
--   span       no lease that ends then was longer than this
--   h:<token>  a holder, or its owner, see owner.lua: "weight expires ttl fence numbers
--              last since client text"; last is the last number that it was given
--
-- KEYS[1]  lock

local function holder_read(record)
  if not record then
    return nil
  end
  local h = {}
  h.weight, h.expires, h.ttl, h.fence, h.numbers, h.last, h.since, h.client, h.text =
    string.match(record, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  h.weight, h.expires, h.ttl = tonumber(h.weight), tonumber(h.expires), tonumber(h.ttl)
  h.fence, h.numbers, h.last, h.since = tonumber(h.fence), tonumber(h.numbers), tonumber(h.last), tonumber(h.since)
  return h
end

local function holder_record(weight, expires, ttl, first, n, last, since, client, text)
  return string.format('%.0f %.0f %.0f %.0f %.0f %.0f %.0f ', weight, expires, ttl, first, n, last, since)
    .. client .. ' ' .. text
end

local function holder_write(who, h)
  redis.call('HSET', KEYS[1], 'h:' .. who,
    holder_record(h.weight, h.expires, h.ttl, h.fence, h.numbers, h.last, h.since, h.client, h.text))
end

local me = holder_read(seen[10])
local held, numbers = me and me.fence, me and me.numbers

-- Whoever finds the lock unused says what its limit is. Returns whether a request
-- with this limit may be served.
local function agree(asked)
  if used == 0 and not head and not resized then
    limit = asked
  end
  return resized or limit == asked
end

-- Make a token, or an owner, a holder. Returns how long the key must live then.
local function hold(who, weight, ttl, fences, client, holder)
  reserve(take(fences))
  local length = ttl + grace(ttl)
  local expires = now + length
  if used == 0 or expires < ends then
    ends, span = expires, length
    redis.call('HSET', KEYS[1], 'limit', int(limit), 'earliest', int(ends), 'span', int(span))
  end
  used = used + weight
  redis.call('HSET', KEYS[1], 'used', int(used), 'fence', int(fence),
    'h:' .. who, holder_record(weight, expires, ttl, fence, reserved, fence + reserved - 1, now, client, holder))
  if who == self then
    held, numbers = fence, reserved
  end
  heed(who, client)
  return lifetime(length)
end
