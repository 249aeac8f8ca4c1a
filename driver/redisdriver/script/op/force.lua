-- op/force.lua: take a lock from all who hold it.
--
-- KEYS[n]  lock
-- ARGV[3]  a token that stands nowhere
--
-- Returns an error, or {status, more}: status HELD it is taken from them, NEITHER nobody held it;
-- more as release.lua.

local NEITHER, HELD = 0, 1
local ROOM = 128 -- for tombstones

local refused = load(ARGV[3])
if refused then
  return refused
end
expire()
local victims = {}
while lock.count > 0 do
  victims[#victims + 1] = holder_at(lock.count)
  remove(victims[#victims])
end
-- A heartbeat that is on its way must not take the lock back.
for i = 1, math.min(#victims, ROOM) do
  bury(victims[i].token)
end
local more = grant()
refused = save(true)
if refused then
  return refused
end
for i = 1, #victims do
  tell(client_of(victims[i]), 'lost ' .. victims[i].token)
end
publish()
return { #victims > 0 and HELD or NEITHER, more }
