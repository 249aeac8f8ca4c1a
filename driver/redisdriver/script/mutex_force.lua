-- mutex_force.lua: take the lock from whoever holds it.
--
-- KEYS[1]  lock
--
-- Returns {status, more}: status 1 taken, 0 nobody held it. more as in
-- mutex_release.lua; run mutex_release.lua with any token then.

expire()
if not occupant then
  return { 0, 0 }
end
local victims = {}
bearers(occupant, string.match(redis.call('HGET', KEYS[1], 'holder'), '^%d+ (%S+)'), victims)
free()
condemn(victims)
local more, news = grant()
for i = 1, #victims do
  news[#news + 1] = { victims[i].client, 'lost ' .. victims[i].token }
end
spread(news)
return { 1, more }
