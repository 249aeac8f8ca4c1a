-- fair_inspect.lua: who holds the lock, and who waits, in order. Needs held.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  holds, a zset: the tokens of an owner, by the end of their leases
-- KEYS[3]  queue, a list: who waits
-- KEYS[4]  timeouts, a zset: when each of them loses its place
-- KEYS[5]  waits, a zset: when a waiter of ours does so
--
-- Returns {{owner, left, holder, ...}, {waiter, ...}}, see held.lua.

local reply, queue = held(), {}
if reply.err then
  return reply
end
for _, waiter in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
  local ends = redis.call('ZSCORE', KEYS[5], waiter) or redis.call('ZSCORE', KEYS[4], waiter)
  if ends and tonumber(ends) > now then
    table.insert(queue, string.sub(waiter, 1, 256))
  end
end
return { reply, queue }
