-- lib/queue.lua: those who wait for a lock, and how they come to hold it.
--
-- KEYS[n]  lock

local LOOKED_AT = 64 -- places, at most, so that no call holds up the server for long
local SEARCHED = 8 -- places, for the dead among them

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
--
-- A message ends with its seal, a hash of the news and of the client's secret. The secret came with an
-- ask, is in the records of locks, and goes over no channel. So somebody with rights on channels
-- alone can neither make news nor change any. The secret before the news keeps others from looking
-- for news with the same hash, the one behind from going on where that hash ends.
--
-- The wrong version has no seal: a stranger heard "ask <token>", published "granted <token> 1 1 1",
-- and two held the lock. One that repeats a secret of the ask instead can be heard and changed: on
-- a Cluster, what another node publishes then may come first.
local function publish()
  for client, lines in pairs(news) do
    local secret = match(client, '^[^.!]*%.?([^!]*)')
    redis.pcall('PUBLISH', channel(client), lines .. '\n' .. redis.sha1hex(secret .. lines .. secret))
  end
end

-- Tell a holder that somebody waits, if it wants to hear that.
local function heed(h)
  if string.byte(client_of(h), -1) == NOTICE then
    tell(h.client, 'wanted ' .. h.token)
  end
end

-- Tell those who hold the lock. If they are very many, the others hear it when they renew.
local function notify()
  for slot = 1, math.min(lock.count, LOOKED_AT) do
    heed(holder_at(slot))
  end
end

local function drop_waiter(w)
  lock.waiters[w.place] = false
  set('waiting', math.max(0, lock.waiting - 1))
  changed[w.field], changed['t:' .. w.token] = false, false
  if w.place == lock.place then
    lock.place = nil
  end
end

-- Whether a waiter has stopped asking; or it was written before the clock was set back, which
-- nobody can tell from that.
local function is_overdue(w)
  return w.alive < now or w.alive > now + patience(w.ttl)
end

-- Whether nobody listens for a waiter whose client listened when it last asked.
local function seems_gone(w)
  return w.heard == '1' and w.token ~= lock.asker and listeners(w.client) == 0
end

-- The tokens of the owner that has just got the lock need not wait for each other. They come
-- in when they ask, so they are told to.
local function call_cotokens(owner, place, left)
  for p = place, math.min(lock.tail, place + left) do
    local w = waiter_at(p)
    if w and w.owner == owner then
      tell(w.client, 'ask ' .. w.token, w.token)
    end
  end
end

-- The first waiter that has not gone, if it is among those that one call looks at. It is to know when
-- the next lease ends. Of several leases that time may be of one that was given up since: the wrong
-- version has waiters look again and again for a third of each TTL.
local function next_waiter()
  if lock.count > 1 and lock.count <= LOOKED_AT then
    expire_each()
  end
  for place = lock.head or 1, lock.head and math.min(lock.tail, lock.head + LOOKED_AT) or 0 do
    local w = waiter_at(place)
    if w and not is_overdue(w) and not seems_gone(w) then
      return w
    end
  end
end

-- Nobody is told when a lease runs out. The waiter that is next looks again at that time,
-- which the answer to its ask has named. A waiter that became next after its ask is told to
-- ask once more, unless its next heartbeat comes before that time.
--
-- A script that has a lease end earlier than others were told forgets who is informed.
local function inform()
  local w = next_waiter()
  if w and w.alive - patience(w.ttl) + w.ttl / 3 > lock.earliest then
    tell(w.client, 'ask ' .. w.token, w.token)
  end
end

-- Whether a waiter is next, as those before it have gone.
local function is_next(place)
  local w = next_waiter()
  return w and w.place == place
end

-- Drop those that have gone from some places of the queue, of a short one all: before a token is
-- turned away because so many wait. They need not be the first, and the others may wait for long.
local function drop_dead()
  local length = lock.head and lock.tail - lock.head + 1 or 0
  for i = 1, math.min(length, SEARCHED) do
    local w = waiter_at(lock.head + (now_us + i) % length)
    if w and (is_overdue(w) or seems_gone(w)) then
      drop_waiter(w)
    end
  end
end

-- Let in those who wait, from the head of the queue on, until the lock is full or the next one
-- needs more than is left: nobody overtakes, so that who needs much is not starved by those
-- who need little. This is the push: a waiter is made a holder here and now, and only told of
-- it.
--
-- Waiters whose heartbeat is overdue are dropped, and so are those whose client seems to have
-- gone when it is their turn. Either may be wrong. A waiter that is alive asks again, and so
-- comes back to its place; that others were served meanwhile is all that it has lost.
--
-- Returns 1 if there may be more to do. Every script that may have changed the head, how much
-- is held, or the limit, ends with this, and answers with that: whoever runs it has to run
-- release.lua then, with any token, until there is no more.
local function grant()
  local place, left, granted = lock.head, LOOKED_AT, {}
  while place and place <= lock.tail and left > 0 do
    local w = waiter_at(place)
    left = left - 1
    if w and is_overdue(w) then
      drop_waiter(w)
    elseif w and lock.used >= lock.limit and w.weight <= lock.limit then
      break
    elseif w and seems_gone(w) then
      drop_waiter(w)
    elseif w and w.weight > lock.limit then
      -- The limit was lowered. It would wait in vain, and the others behind it.
      drop_waiter(w)
      tell(w.client, 'ask ' .. w.token)
    elseif w and w.weight > lock.limit - lock.used then
      break
    elseif w then
      drop_waiter(w)
      local h = hold(w)
      granted[#granted + 1] = h
      if w.token == lock.asker then
        lock.mine = h
      end
      tell(w.client, 'granted ' .. w.token .. ' ' .. w.ask .. ' ' .. h.numbers .. (lock.told ~= '-' and ' ' .. lock.told or ''),
        w.token)
      if lock.used >= lock.limit then
        place = place + 1
        if w.owner ~= '-' then
          call_cotokens(w.owner, place, left)
        end
        break
      end
    end
    place = place + 1
  end
  local head = place and place <= lock.tail and place or nil
  if head ~= lock.head then
    set('head', head)
  end
  if not head and lock.waiting > 0 then
    set('waiting', 0)
  end
  for i = 1, lock.head and #granted or 0 do
    heed(granted[i]) -- the waiters have told another
  end
  -- Heartbeats mostly come before the next lease ends.
  if head and lock.used > 0 and head ~= lock.informed and now + lock.longest / 3 > lock.earliest then
    inform()
  end
  return left == 0 and head and 1 or 0
end
