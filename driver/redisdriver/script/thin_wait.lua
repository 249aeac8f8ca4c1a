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
  local ask, place = string.match(ARGV[4 + at], '^(%d+) %d+ (%d+)$')
  local wish = wishes[ARGV[5 + at]]
  if not replies[n] and not records[n] and place ~= '0' and wish.wait then
    local field = 'w:' .. place
    local v = redis.pcall('HMGET', KEYS[n], 'birth', 'limit', 'life', 'head', 'skip', 'owner', 'shares', 'h:1', field)
    local token, last, vote, expires, ttl, weight, tag, granted
    if v[1] and v[3] and not (v[5] or v[6] or v[7]) and v[8] and v[9] and tonumber(v[2]) == wish.limit then
      token, last, vote = string.match(v[9], '^(%S+) (%d+) %d+ %d+ %d+ %d+ (%d) ')
      expires, ttl, weight, tag, granted = string.match(v[8], '^%S+ (%d+) (%d+) (%d+) (%S+) (.*)$')
    end
    if token == ARGV[3 + at] and tonumber(last) <= tonumber(ask) and weight == v[2] and wish.weight <= wish.limit then
      if not wish.alive then -- what the records of all who wait for this have in common
        wish.alive = now + patience(wish.ttl)
        wish.waits = ' ' .. int(wish.weight) .. ' ' .. int(wish.ttl) .. ' ' .. wish.fences .. ' ' .. int(wish.alive) .. ' '
        wish.where = ' ' .. wish.client .. ' ' .. wish.owner .. ' ' .. wish.text
      end
      expires, ttl = tonumber(expires), tonumber(ttl)
      local first, behind = v[4] == place, tonumber(place) - tonumber(v[4] or place)
      if (first or behind > NEAR) and expires >= now + wish.ttl / 3 and expires <= now + ttl + grace(ttl)
        and tonumber(v[3]) >= wish.alive + retention / 2 and not (first and wants_notice({ granted = granted })) then
        vote = vote == '3' and vote or (listeners(wish.client) or 0) > 0 and '2' or '1'
        if type(redis.pcall('HSET', KEYS[n], field, token .. ' ' .. ask .. wish.waits .. vote .. wish.where)) == 'number' then
          replies[n], left = { QUEUED, first and expires - now + 1 or 0, 0, tonumber(v[1]), tonumber(place),
            tag .. ' ' .. int(now) .. ' ' .. granted }, left - 1
        end
      end
    end
  end
end
if left == 0 then
  return replies
end
