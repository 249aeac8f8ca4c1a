-- mutex_grant.lua: how the lease of a mutex ends, goes on and passes to the next.
--
-- Comes after queue.lua in the scripts of a mutex.
--
-- KEYS[1]  lock

local function free()
  redis.call('HDEL', KEYS[1], 'token', 'expires', 'ttl', 'holder')
  owner = false
end

-- Read the rest, and end the lease of a holder whose time is over. No lease can have
-- more time left than its whole length: if one has, the server's clock was set back,
-- and the lock must not stay blocked for as long as that.
local function expire()
  look('expires', 'ttl')
  if not owner then
    return
  end
  local ttl = tonumber(lease[2])
  local longest = now + ttl + grace(ttl)
  expires = tonumber(lease[1])
  if expires < now then
    free()
  elseif expires > longest then
    keep(retention)
    expires = longest
    redis.call('HSET', KEYS[1], 'expires', int(expires))
  end
end

-- Every "you hold it" gives the full TTL again, because the holder's trust starts
-- from the ask that this answers.
local function extend(ttl)
  keep(lifetime(ttl + grace(ttl)))
  expires = math.max(expires, now + ttl + grace(ttl))
  redis.call('HSET', KEYS[1], 'expires', int(expires))
end

-- Give a free lock to the first in the queue that can take it. This is the push:
-- the waiter is made the holder here and now, and only told of it.
local function grant()
  if owner or not head then
    return 0, {}
  end
  return serve(function(w)
    keep(hold(w.token, w.ttl, w.fences, w.client, w.holder))
    return 'granted ' .. w.token .. ' ' .. w.ask .. ' ' .. int(fence), true
  end)
end
