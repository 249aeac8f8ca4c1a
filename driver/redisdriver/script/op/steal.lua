-- op/steal.lua: take a lock from all who hold it, for a token that holds it next.
--
-- It is as if force.lua had taken it from them, and this token been granted it with nobody in
-- between. Those who wait keep their places.
--
-- KEYS[n]  lock
-- ARGV[3]  token
-- ARGV[4]  TTL in ms
-- ARGV[5]  how many fences may be of use
-- ARGV[6]  how much to take: all that there is to hold
-- ARGV[7]  owner on whose behalf it is taken, - for none
-- ARGV[8]  client to tell of a loss, - for none
-- ARGV[9]  text about the holder
--
-- Returns an error, or {GRANTED, fence, more, numbers}, or {BURIED, 0, more} if this token had
-- stolen it before and has it no more, or was released; more as release.lua.

local BURIED, GRANTED = 0, 3
local ROOM = 128 -- for tombstones

local w = { token = ARGV[3], ttl = tonumber(ARGV[4]), fences = ARGV[5], weight = tonumber(ARGV[6]), owner = ARGV[7],
  client = ARGV[8], text = ARGV[9] }
local refused = load(w.token)
if refused then
  return refused
end
lock.asker = w.token
clear_tombstones()
expire()
local victims = {}
if lock.mine then -- a repeat
  extend(lock.mine, w.ttl)
elseif not has_tombstone(w.token) then
  while lock.count > 0 do
    victims[#victims + 1] = holder_at(lock.count)
    remove(victims[#victims])
  end
  for i = 1, math.min(#victims, ROOM) do
    bury(victims[i].token)
  end
  -- A token steals once. The wrong version leaves no tombstone of its own: a repeat that comes
  -- when its lease is over steals from the next holder.
  bury(w.token)
  if lock.place then
    drop_waiter(waiter_at(lock.place))
  end
  if lock.limit ~= w.weight then
    set('limit', w.weight)
  end
  lock.mine, lock.informed = hold(w), nil
end
local more = grant()
if lock.mine and lock.head then
  notify() -- the waiters have told another
end
refused = save(true)
if refused then
  return refused
end
local text = string.gsub(w.text, '%c', ' ')
for i = 1, #victims do
  tell(client_of(victims[i]), 'stolen ' .. victims[i].token .. ' ' .. text)
end
publish()
if not lock.mine then
  return { BURIED, 0, more }
end
local fence, numbers = fences_of(lock.mine)
return { GRANTED, fence, more, numbers }
