-- queue.lua: those who wait for a lock, and how they come to hold it.
--
-- KEYS[n]  lock
-- ARGV[1]  wake channels are called this followed by the client's id

local LOOKED_AT = 64 -- places, at most, so that no call holds up the server for long

local news = {} -- what each client is to be told, a line for each piece of news

-- A token that hears it from the answer need not be told.
local function tell(client, line, token)
  if client ~= '-' and not (token and token == lock.asker) then
    news[client] = news[client] and news[client] .. '\n' .. line or line
  end
end

-- One message for each client. A PUBLISH can be refused by an ACL; that must not undo half of a
-- grant. So it is the last thing a script does, and its result is of no interest: a waiter that
-- hears nothing learns of its grant from its next heartbeat.
local function publish()
  for client, lines in pairs(news) do
    redis.pcall('PUBLISH', ARGV[1] .. client, lines)
  end
end

-- Those who hold the lock and want to hear that somebody waits; a few suffice.
local function notify()
  for slot = 1, math.min(lock.count, 16) do
    local h = holder_at(slot)
    if string.byte(client_of(h), -1) == NOTICE then
      tell(h.client, 'wanted ' .. h.token)
    end
  end
end

local function drop_waiter(w)
  lock.waiters[w.place] = false
  changed[w.field], changed['t:' .. w.token] = false, false
  if w.place == lock.place then
    lock.place = nil
  end
end

-- Whether nobody listens for a waiter whose client was known to listen.
local function seems_gone(w)
  return w.vote == '2' and w.token ~= lock.asker and listeners(w.client) == 0
end

-- Let in those who wait, from the head of the queue on, until the lock is full or the next one
-- needs more than is left: nobody overtakes, so that who needs much is not starved by those
-- who need little. This is the push: a waiter is made a holder here and now, and only told of
-- it.
--
-- Waiters whose heartbeat is overdue are dropped. Those whose client seems to have gone are
-- passed over, but keep their place until they are overdue too: a count of subscribers may be
-- wrong, a missing heartbeat is not.
--
-- Returns 1 if there may be more to do. Every script that may have changed the head, how much
-- is held, or the limit, ends with this, and answers with that: whoever runs it has to run
-- release.lua then, with any token, until there is no more.
local function grant()
  local place, passed, left, granted = lock.head, nil, LOOKED_AT, false
  while place and place <= lock.tail and left > 0 do
    local w = waiter_at(place)
    left = left - 1
    if w and (w.alive < now or w.alive > now + patience(w.ttl)) then
      -- Overdue; or written before the clock was set back, which nobody can tell from
      -- overdue. A waiter that is alive comes back to its place.
      drop_waiter(w)
    elseif w and lock.skip and place < lock.skip then
      passed, place = place, lock.skip - 1
    elseif w and lock.used >= lock.limit and w.weight <= lock.limit then
      break
    elseif w and seems_gone(w) then
      passed = passed or place
    elseif w and w.weight > lock.limit then
      -- The limit was lowered. It would wait in vain, and the others behind it.
      drop_waiter(w)
      tell(w.client, 'ask ' .. w.token)
    elseif w and w.weight > lock.limit - lock.used then
      break
    elseif w then
      drop_waiter(w)
      local h = hold(w)
      granted = true
      if w.token == lock.asker then
        lock.mine = h
      end
      tell(w.client, 'granted ' .. w.token .. ' ' .. w.ask .. ' ' .. h.numbers .. (lock.told ~= '-' and ' ' .. lock.told or ''),
        w.token)
      if lock.used >= lock.limit then
        place = place + 1
        if w.owner ~= '-' then
          rarely().call_cotokens(w.owner, place, left)
        end
        break
      end
    end
    place = place + 1
  end
  local more = left == 0 and place and place <= lock.tail
  local head, skip = passed or place and place <= lock.tail and place or nil, passed and place or nil
  if head ~= lock.head then
    set('head', head)
  end
  if skip ~= lock.skip then
    set('skip', skip)
  end
  if granted and lock.head then
    notify() -- the waiters have told another
  end
  -- Heartbeats mostly come before the next lease ends.
  if lock.used > 0 and (skip or head) ~= lock.informed and now + lock.longest / 3 > lock.earliest then
    rarely().inform()
  end
  return more and 1 or 0
end
