-- held.lua: who holds the lock. Needs rlock.lua and holds.lua.

-- held returns {owner, left, holder, ...}: the owner or '', and for each holder the rest of its
-- lease in ms, -1 if it has no end, and at most 256 bytes of its name, with how often it holds if
-- that is more than once. With a counter, its number and a space come before the owner. If nobody
-- holds the lock, {}.
local function held(counter)
  local holder, times = rlock()
  if not holder then
    local fields = redis.call('HLEN', KEYS[1])
    if fields == 0 or fields > 1 and redis.call('HEXISTS', KEYS[1], 'mode') == 1 then
      return {} -- or an RReadWriteLock
    end
    return redis.error_reply('WRONGTYPE the hash is no RLock')
  end
  local number = counter and (redis.call('GET', counter) or '') .. ' ' or ''
  if string.sub(holder, 1, 6) == 'owner ' then
    local reply = { number .. string.sub(holder, 7) }
    each(function(token, left)
      table.insert(reply, left)
      table.insert(reply, token)
    end)
    if #reply > 1 then
      return reply
    end
  end
  holder = string.sub(holder, 1, 256)
  if times ~= '1' then
    holder = holder .. ', ' .. times .. ' times'
  end
  return { number, redis.call('PTTL', KEYS[1]), holder }
end

