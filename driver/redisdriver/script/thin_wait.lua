-- thin_wait.lua: say again that one waits for a lock where nothing has happened meanwhile.
--
-- That is most heartbeats of waiters. One token holds all of the lock, and its lease outlasts
-- the next heartbeat, so there is nothing to grant. And the waiter is the first, or so far behind
-- that it is not the first either if a few before it have gone. Then this does what acquire.lua
-- would, by one read and one write: the waiter's record says that it is alive. What does not fit
-- in is left to acquire.lua, and so is a write that is refused.
--
-- Comes after thin_acquire.lua, which has the arguments.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "ask birth place"
-- ARGV[5]  what it asks for
--
-- Returns for each lock, as acquire.lua does, {QUEUED, ms, 0, birth, place, tag} or nothing yet.

local QUEUED = 2

local function waiter_from(at, ask)
  local wish = wishes[ARGV[5 + at]]
  return { token = ARGV[3 + at], ask = ask, ttl = wish.ttl, fences = wish.fences, weight = wish.weight, client = wish.client,
    owner = wish.owner, text = wish.text }
end

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local number, place = string.match(ARGV[4 + at], '^(%d+) %d+ (%d+)$')
  if not replies[n] and not records[n] and place ~= '0' then
    local field = 'w:' .. place
    local v = redis.pcall('HMGET', KEYS[n], 'birth', 'limit', 'life', 'head', 'skip', 'owner', 'shares', 'h:1', field)
    local h, token, ask, vote
    if v[1] and tonumber(v[2]) == wishes[ARGV[5 + at]].limit and v[3] and not (v[5] or v[6] or v[7]) and v[8] and v[9]
      and wishes[ARGV[5 + at]].wait then
      h, token, ask, vote = holder_read(v[8]), string.match(v[9], '^(%S+) (%d+) %d+ %d+ %d+ %d+ (%d) ')
    end
    local w = waiter_from(at, number)
    w.alive = now + patience(w.ttl)
    local first, behind = v[4] == place, tonumber(place) - tonumber(v[4] or place)
    if (first or behind > NEAR) and token == w.token and tonumber(ask) <= tonumber(w.ask)
      and h.weight == tonumber(v[2]) and w.weight <= h.weight and h.expires >= now + w.ttl / 3 and h.expires <= now + h.ttl + grace(h.ttl)
      and tonumber(v[3]) >= w.alive + retention / 2 and not (first and wants_notice(h)) then
      w.vote = vote == '3' and vote or (listeners(w.client) or 0) > 0 and '2' or '1'
      if type(redis.pcall('HSET', KEYS[n], field, waiter_record(w))) == 'number' then
        replies[n], left = { QUEUED, first and h.expires - now + 1 or 0, 0, tonumber(v[1]), tonumber(place),
          h.tag .. ' ' .. int(now) .. ' ' .. h.granted }, left - 1
      end
    end
  end
end
if left == 0 then
  return replies
end
