-- mutex_force.lua: take the lock from whoever holds it.
--
-- KEYS[1]  lock
--
-- Returns {status, more}: status 1 taken, 0 nobody held it. more as in
-- mutex_release.lua; run mutex_release.lua with any token then.

expire()
if not owner then
  return { 0, 0 }
end
local client = string.match(redis.call('HGET', KEYS[1], 'holder'), '^%d+ (%S+)')
local victim = owner
free()
-- A heartbeat of the victim may be on its way; it must not take the lock back.
bury(victim)
local more, news = grant()
news[#news + 1] = { client, 'lost ' .. victim }
spread(news)
return { 1, more }
