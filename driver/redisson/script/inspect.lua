-- inspect.lua: who holds the lock, how often, and for how long. Needs clock.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  holds, a zset: the tokens of an owner, by the end of their leases
--
-- Returns {owner, left, holder, ...}: the owner or '', and for each holder the rest of its lease
-- in ms, -1 if it has no end, and at most 256 bytes of its name, with how often it holds if that
-- is more than once. If nobody holds the lock, {}.

local fields = redis.call('HLEN', KEYS[1])
if fields == 0 then
  return {}
end
local lock = fields == 1 and redis.call('HGETALL', KEYS[1]) or { '', '' }
local holder, times = lock[1], lock[2]
if not string.find(times, '^[1-9]%d*$') then
  return redis.error_reply('WRONGTYPE the hash is no RLock')
end
if string.sub(holder, 1, 6) == 'owner ' then
  local reply = { string.sub(holder, 7) }
  local holds = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
  for i = 1, #holds, 2 do
    if tonumber(holds[i + 1]) > now then
      table.insert(reply, tonumber(holds[i + 1]) - now)
      table.insert(reply, holds[i])
    end
  end
  if #reply > 1 then
    return reply
  end
end
holder = string.sub(holder, 1, 256)
if times ~= '1' then
  holder = holder .. ', ' .. times .. ' times'
end
return { '', redis.call('PTTL', KEYS[1]), holder }
