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
  bearers(who, h.client, victims)
  forget(who)
end)
condemn(victims)
lower(used)
local more, news = grant()
for i = 1, #victims do
  news[#news + 1] = { victims[i].client, 'lost ' .. victims[i].token }
end
spread(news)
return { 1, more }
