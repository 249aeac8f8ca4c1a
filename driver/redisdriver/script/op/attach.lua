-- op/attach.lua: make a token the holder of what another one holds, in its place.
--
-- It is as if that one had released it, and this one been granted it with nobody in between; so
-- the fence is new, but beside others of an owner it is theirs.
--
-- KEYS[n]  lock
-- ARGV[3]  token
-- ARGV[4]  the token that holds it
-- ARGV[5]  TTL in ms
-- ARGV[6]  how many fences may be of use
-- ARGV[7]  client to tell of a loss, - for none
-- ARGV[8]  text about the holder
--
-- Returns an error, or {GRANTED, fence, more, numbers, weight, owner}, owner - for none, or
-- {BURIED, 0, more} if that token does not hold it, or this one was released before; more as
-- release.lua.

local BURIED, GRANTED = 0, 3

local function holder_of(token)
  if lock.holders[1] and lock.holders[1].token == token then
    return lock.holders[1]
  end
  local slot = not lock.thin and match(redis.call('HGET', KEYS[n], 't:' .. token) or '', '^h(%d+)$')
  local h = slot and tonumber(slot) <= lock.count and holder_at(tonumber(slot))
  return h and h.token == token and h or nil
end

local w = { token = ARGV[3], ttl = tonumber(ARGV[5]), fences = ARGV[6], client = ARGV[7], text = ARGV[8] }
local refused = load(w.token)
if refused then
  return refused
end
if has_tombstone(w.token) then
  return { BURIED, 0, 0 }
end
lock.asker = w.token
local old = holder_of(ARGV[4])
clear_tombstones()
expire()
if lock.mine then -- a repeat
  if w.ttl >= lock.mine.ttl then -- else it is to end when the first one said
    extend(lock.mine, w.ttl)
  end
elseif old and lock.holders[old.slot] == old then -- it has not just expired
  local before = lock.earliest
  w.weight, w.owner = old.weight, lock.owner or '-'
  remove(old)
  lock.mine = hold(w)
  bury(old.token) -- an ask of it may be on its way
  if lock.earliest < before then
    lock.informed = nil
  end
end
local more = grant()
if lock.mine and lock.head then
  notify() -- the waiters have told another
end
refused = save(false)
if refused then
  return refused
end
publish()
if not lock.mine then
  return { BURIED, 0, more }
end
local fence, numbers = fences_of(lock.mine)
return { GRANTED, fence, more, numbers, lock.mine.weight, lock.owner or '-' }
