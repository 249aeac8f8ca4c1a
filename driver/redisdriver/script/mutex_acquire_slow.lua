-- mutex_acquire_slow.lua: the second part of mutex_acquire.lua, when others are there.
--
-- KEYS[1]   lock
-- ARGV[4]   ask
-- ARGV[7]   1 to queue
-- ARGV[10]  birth and
-- ARGV[11]  place
--
-- Returns as mutex_acquire.lua does.

local wait = ARGV[7] == '1'

if buried() then
  return { 0 }
end
clear()
expire()
if owner == token then
  extend(ttl)
  return { 3, fence }
end

local more, news = 0, {}
if wait and (owner or head) then
  waiter_ask(tonumber(ARGV[4]), ttl, fences, client, holder, tonumber(ARGV[10]), tonumber(ARGV[11]))
  more, news = grant()
else
  -- Who does not wait has no place, so it must not overtake those who have.
  more, news = grant()
  if not owner and not head then
    keep(hold(token, ttl, fences, client, holder))
  end
end
spread(news)
if owner == token then
  return { 3, fence }
end
if not wait then
  return { 1, owner and expires - now + 1 or 0, more }
end
-- Nobody is told when a lease runs out. Who is next looks again at that time.
local next = owner and mine == (skip or head)
return { 2, next and expires - now + 1 or 0, more, birth, mine }
