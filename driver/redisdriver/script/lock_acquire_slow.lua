-- lock_acquire_slow.lua: the end of <kind>_acquire.lua, when others are there.
--
-- KEYS[1]   lock
-- ARGV[4]   ask
-- ARGV[7]   1 to queue
-- ARGV[10]  birth and
-- ARGV[11]  place
--
-- Returns as <kind>_acquire.lua does.

local wait = ARGV[7] == '1'
local more, news = 0, {}
if wait and (head or weight > limit - used) then
  waiter_ask(tonumber(ARGV[4]), weight, ttl, fences, client, holder, tonumber(ARGV[10]), tonumber(ARGV[11]))
  -- A heartbeat also finds the head, if who stood there has left.
  if used < limit or ARGV[4] ~= '1' then
    more, news = grant()
  end
else
  -- Who does not wait has no place, so it must not overtake those who have.
  more, news = grant()
  if not head and weight <= limit - used then
    local alone = used == 0
    settle(give(token, self, weight, ttl, fences, client, holder), alone)
  end
end
if held and self ~= token then -- perhaps by another token of its owner
  expire()
  join()
  more = grant(news) -- the place that it had is empty now
end
spread(news, token)
if held then
  return granted(more)
end
if wait and mine == (skip or head) then
  notify()
end
if not wait then
  return { 1, used > 0 and ends - now + 1 or 0, more, 0, 0, carrier or '' }
end
-- Nobody is told when a lease runs out. A waiter that is next looks again at that time.
local next = used > 0 and (mine == (skip or head) or now + ttl / 3 > ends and is_next(mine))
return { 2, next and ends - now + 1 or 0, more, birth, mine, carrier or '' }
