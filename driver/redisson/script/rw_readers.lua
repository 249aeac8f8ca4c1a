-- rw_readers.lua: the leases of readers.

-- readable returns for how many ms a holder of the lock may still read, 0 if it may not. It has
-- a key for each time that it holds.
local function readable(holder, times, prefix)
  local left = 0
  for i = tonumber(times) or 0, 1, -1 do
    left = math.max(left, redis.call('PTTL', prefix .. ':' .. holder .. ':rwlock_timeout:' .. i))
  end
  return left
end

-- others returns for how many ms somebody may read, and drops who may not: it crashed while others
-- read.
local function others(prefix)
  local holders, last = redis.call('HGETALL', KEYS[1]), 0
  for i = 1, #holders, 2 do
    if holders[i] ~= 'mode' then
      local left = readable(holders[i], holders[i + 1], prefix)
      if left <= 0 then
        redis.call('HDEL', KEYS[1], holders[i])
      end
      last = math.max(last, left)
    end
  end
  return last
end
