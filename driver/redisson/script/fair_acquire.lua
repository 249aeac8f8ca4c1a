-- fair_acquire.lua: take the lock if it is free and nobody is ahead, or if this token or its owner
-- has it; else take a place in the queue, or keep it. Needs whose.lua, owner.lua and fair.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of the owner, by the end of their leases
-- KEYS[4]  queue, a list: who waits
-- KEYS[5]  timeouts, a zset: when each of them loses its place
-- KEYS[6]  waits, a zset: when a waiter of ours does so
-- ARGV[1]  token
-- ARGV[2]  owner, as a field, or '' for none
-- ARGV[3]  length of the lease in ms
-- ARGV[4]  how long the token keeps its place without asking, in ms; 0 if it does not wait
-- ARGV[5]  how many may wait, 0 for any number
-- ARGV[6]  turn: how long the first of the queue has to take the lock, in ms
-- ARGV[7]  channel of the lock
-- ARGV[8]  PUBLISH or SPUBLISH
--
-- Returns {status, left}. status 0 the token was given up before, 1 it holds the lock, 2 it can not
-- have the lock, 3 nor wait for it, 4 it waits; left is in how many ms to ask again, -1 if
-- that is not known. Who holds the lock follows.

if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return { 0, 0 }
end
lasts(ARGV[1]) -- If another program keeps something else there, it fails now and not at the release.
local field = ARGV[2] ~= '' and ARGV[2] or ARGV[1]
local holds, left = redis.call('HEXISTS', KEYS[1], field) == 1, redis.call('PTTL', KEYS[1])
local ahead, dropped = first(ARGV[6])
if holds or left == -2 and (not ahead or ahead == ARGV[1]) then
  if ahead then
    leave(ARGV[1], ARGV[6])
  end
  if ARGV[2] == '' then
    -- A repeat is not counted again. It rests on its own ask, so it has to last from now on, but
    -- it never shortens what a renewal has made longer: it may be late.
    redis.call('HSET', KEYS[1], field, 1)
    redis.call('PEXPIRE', KEYS[1], math.max(left, tonumber(ARGV[3])))
    return { 1, 0 }
  end
  if holds then
    prune()
  else
    redis.call('DEL', KEYS[3]) -- of a lock that was taken away by others
  end
  hold()
  write()
  return { 1, 0 }
end
if ahead ~= ARGV[1] and dropped then
  tell(ahead, ARGV[8], ARGV[7])
end
if ARGV[4] == '0' then
  return { 2, ahead and -1 or left, whose() }
end
local queue = redis.call('LRANGE', KEYS[4], 0, -1)
local place = 1
while queue[place] and queue[place] ~= ARGV[1] do
  place = place + 1
end
if not queue[place] then
  if ARGV[5] ~= '0' and #queue >= tonumber(ARGV[5]) then
    return { 3, -1, whose() }
  end
  redis.call('RPUSH', KEYS[4], ARGV[1])
end
-- Java counts from the place before, or from the end of the lease, when a waiter comes, and never
-- again. A waiter here also counts, at each ask, the turns of all before it from now on. So it
-- outlasts a holder that renews, and those whose time has passed.
local turns = math.max(left, 0) + ARGV[6] * (place - 1)
local before = place > 1 and redis.call('ZSCORE', KEYS[5], queue[place - 1]) or 0
local ends = math.max(tonumber(before), now + turns) + ARGV[6]
redis.call('ZADD', KEYS[5], string.format('%.0f', ends), ARGV[1])
redis.call('ZADD', KEYS[6], string.format('%.0f', now + ARGV[4]), ARGV[1])
redis.call('PEXPIRE', KEYS[6], string.format('%.0f', math.max(redis.call('PTTL', KEYS[6]), ends - now)))
if left == -2 then -- The first waiter may have died, and nobody tells of a turn that has passed.
  return { 4, lasts(ahead) - now, '' }
end
return { 4, place == 1 and left or -1, whose() }
