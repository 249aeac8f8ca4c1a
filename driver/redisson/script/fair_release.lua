-- fair_release.lua: give up the lock, or the place in its queue, and wake the next waiter. Needs
-- settle.lua, owner.lua and fair.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of the owner, by the end of their leases
-- KEYS[4]  queue, a list: who waits
-- KEYS[5]  timeouts, a zset: when each of them loses its place
-- KEYS[6]  waits, a zset: when a waiter of ours does so
-- ARGV[1]  token
-- ARGV[2]  owner, as a field, or '' for none
-- ARGV[3]  channel of the lock
-- ARGV[4]  PUBLISH or SPUBLISH
-- ARGV[5]  how long it will be known that the token was given up, in ms; 0 for not at all
-- ARGV[6]  turn: how long the first of the queue has to take the lock, in ms
--
-- Returns 1 released, 0 not held by this token, which did not wait either.

if ARGV[5] ~= '0' then
  settle({ ARGV[1] }, ARGV[5])
end
local was = redis.call('HDEL', KEYS[1], ARGV[1]) == 1
if not was and ARGV[2] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  prune()
  was = redis.call('ZREM', KEYS[3], ARGV[1]) == 1
  if was and redis.call('EXISTS', KEYS[3]) == 1 then
    write()
  elseif was then
    redis.call('DEL', KEYS[1])
  end
end
was = leave(ARGV[1], ARGV[6]) or was
if not was then
  return 0
end
local waiter = first(ARGV[6]) -- which returns two values
tell(waiter, ARGV[4], ARGV[3])
return 1
