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

-- What the waiter w is to be remembered by, see record.lua. All who wait for the same have most of
-- it in common: w is the wish, of the token that it is filled in with.
local function waiter_record(w)
  if not w.alive then
    w.alive = now + patience(w.ttl)
    w.waits = ' ' .. w.weight_text .. ' ' .. w.ttl_text .. ' ' .. w.fences .. ' ' .. int(w.alive) .. ' '
    w.where = ' ' .. w.client .. ' ' .. w.owner .. ' ' .. w.text
  end
  return w.token .. ' ' .. w.ask .. w.waits .. w.vote .. w.where
end

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local w = wishes[ARGV[5 + at]]
  if not replies[n] and not records[n] and w.wait and string.sub(ARGV[4 + at], -2) ~= ' 0' then
    local ask, place = string.match(ARGV[4 + at], '^(%d+) %d+ (%d+)$')
    local field = 'w:' .. place
    local v = redis.pcall('HMGET', KEYS[n], 'birth', 'limit', 'life', 'head', 'skip', 'owner', 'shares', 'h:1', field)
    local token, last, vote, expires, ttl, weight, tag, granted
    if v[1] and v[3] and not (v[5] or v[6] or v[7]) and v[8] and v[9] and v[2] and v[2] + 0 == w.limit then
      token, last, vote = string.match(v[9], '^(%S+) (%d+) %d+ %d+ %d+ %d+ (%d) ')
      expires, ttl, weight, tag, granted = string.match(v[8], '^%S+ (%d+) (%d+) (%d+) (%S+) (.*)$')
    end
    if token == ARGV[3 + at] and last + 0 <= ask + 0 and weight == v[2] and w.weight <= w.limit then
      expires, ttl, place = expires + 0, ttl + 0, place + 0
      local first, behind = v[4] and v[4] + 0 == place, place - (v[4] or place)
      if (first or behind > NEAR) and expires >= now + w.ttl / 3 and expires <= now + ttl + grace(ttl)
        and v[3] + 0 >= now + patience(w.ttl) + retention / 2
        and not (first and string.byte(client_of({ granted = granted }), -1) == NOTICE) then
        w.token, w.ask = token, ask
        w.vote = vote == '3' and vote or (listeners(w.client) or 0) > 0 and '2' or '1'
        if type(redis.pcall('HSET', KEYS[n], field, waiter_record(w))) == 'number' then
          replies[n], left = { QUEUED, first and expires - now + 1 or 0, 0, v[1] + 0, place,
            tag .. ' ' .. int(now) .. ' ' .. granted }, left - 1
        end
      end
    end
  end
end
if left == 0 then
  return replies
end
