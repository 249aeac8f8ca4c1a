-- fair.lua: the queue of an RFairLock. Needs clock.lua.
--
-- A waiter has a place in KEYS[4], a list, and a time in KEYS[5], a zset: when it loses the place if
-- it is the first one then. Each place adds a turn to that of the place before, and who leaves takes
-- its turn with it. Of our waiters KEYS[6], a zset, has a shorter time, which each of their asks
-- moves. Programs in Java do not know of it.

-- leave drops a waiter, and reports whether it was one.
local function leave(token, turn)
  local found = false
  for _, waiter in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
    if found then
      redis.call('ZINCRBY', KEYS[5], -turn, waiter)
    end
    found = found or waiter == token
  end
  redis.call('ZREM', KEYS[5], token)
  redis.call('ZREM', KEYS[6], token)
  redis.call('LREM', KEYS[4], 0, token)
  return found
end

-- lasts returns when a waiter loses its place if it is the first one then, nil if it has no time, and
-- whether it is one of ours.
local function lasts(waiter)
  local own = redis.call('ZSCORE', KEYS[6], waiter)
  return tonumber(own or redis.call('ZSCORE', KEYS[5], waiter)), own
end

-- first returns the first waiter that has not lost its place, false for none, and whether another
-- was dropped.
local function first(turn)
  local dropped = false
  while true do
    local waiter = redis.call('LINDEX', KEYS[4], 0)
    if not waiter then
      return false, dropped
    end
    local ends, own = lasts(waiter)
    if ends and ends > now then
      return waiter, dropped
    end
    dropped = true
    if own then
      leave(waiter, turn)
    else -- As in Java, the others keep their times.
      redis.call('ZREM', KEYS[5], waiter)
      redis.call('LPOP', KEYS[4])
    end
  end
end

-- tell wakes the first waiter if the lock is free. pcall: whoever may not publish has released all
-- the same.
local function tell(waiter, publish, channel)
  if waiter and redis.call('EXISTS', KEYS[1]) == 0 then
    redis.pcall(publish, channel .. ':' .. waiter, '0')
  end
end

