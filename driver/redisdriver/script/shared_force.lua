-- shared_force.lua: take a lock from all who hold a part of it.
--
-- KEYS[1]  lock
--
-- Returns {status, more}: status 1 taken, 0 nobody held it. more as in
-- mutex_release.lua; run shared_release.lua with any token then.

expire()
if used == 0 then
  return { 0, 0 }
end
local victims = {}
holders(function(who, h)
  forget(who)
  -- A heartbeat of the victim may be on its way; it must not take the lock back. There
  -- is no room for many more tombstones.
  if #victims < 128 then
    bury(who)
  end
  victims[#victims + 1] = { h.client, 'lost ' .. who }
end)
lower(used)
local more, news = grant()
for i = 1, #news do
  victims[#victims + 1] = news[i]
end
spread(victims)
return { 1, more }
