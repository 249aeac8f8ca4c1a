-- queue.lua: those who wait for a lock, and how they come to hold it.
--
-- KEYS[n]  lock
-- ARGV[1]  wake channels are called this followed by the client's id

local LOOKED_AT = 64 -- places, at most, so that no call holds up the server for long

local news = {} -- who is to be told what: { client, line }

-- A token that hears it from the answer need not be told.
local function tell(client, line, token)
  if client ~= '-' and not (token and token == lock.asker) then
    news[#news + 1] = { client, line }
  end
end

-- One message for each client, with a line for each piece of news. A PUBLISH can be refused by
-- an ACL; that must not undo half of a grant. So it is the last thing a script does, and its
-- result is of no interest: a waiter that hears nothing learns of its grant from its next
-- heartbeat.
local function publish()
  local lines = {}
  for i = 1, #news do
    local client, line = news[i][1], news[i][2]
    lines[client] = lines[client] and lines[client] .. '\n' .. line or line
  end
  for client, text in pairs(lines) do
    redis.pcall('PUBLISH', ARGV[1] .. client, text)
  end
end

-- Those who hold the lock and want to hear that somebody waits; a few suffice.
local function notify()
  for slot = 1, math.min(lock.count, 16) do
    local h = holder_at(slot)
    if wants_notice(h) then
      tell(client_of(h), 'wanted ' .. h.token)
    end
  end
end

local function put_waiter(w)
  lock.waiters[w.place] = w
  w.field = 'w:' .. int(w.place)
  changed[w.field] = waiter_record(w)
end

local function drop_waiter(w)
  lock.waiters[w.place] = false
  changed[w.field], changed['t:' .. w.token] = false, false
  if w.place == lock.place then
    lock.place = nil
  end
end

-- Join the queue, or say again that one is waiting: w is what is asked for. A waiter whose
-- record was dropped while it was cut off comes back to its old place, if the numbering is
-- still the one that gave the place out.
local function enqueue(w, birth, place)
  keep(patience(w.ttl))
  if w.ttl > lock.longest then
    set('longest', w.ttl)
  end
  w.alive, w.vote = now + patience(w.ttl), (listeners(w.client) or 0) > 0 and '2' or '1'
  if lock.place then
    local before = waiter_at(lock.place)
    if tonumber(before.ask) > tonumber(w.ask) then
      return
    end
    if lock.skip and lock.place < lock.skip then
      w.vote = '3'
      set('skip', nil)
    elseif before.vote == '3' then
      w.vote = '3'
    end
    w.place = lock.place
    put_waiter(w)
    return
  end
  if place > 0 and birth == lock.birth and place <= lock.tail and not waiter_at(place) then
    if lock.skip and place < lock.skip then
      set('skip', nil)
    end
  else
    if not lock.birth then
      set('birth', now_us)
    end
    set('tail', lock.tail + 1)
    place = lock.tail
  end
  w.place, lock.place = place, place
  put_waiter(w)
  changed['t:' .. w.token] = 'w' .. int(place)
  if not lock.head or place < lock.head then
    set('head', place)
  end
end

-- Whether nobody listens for a waiter whose client was known to listen.
local function seems_gone(w)
  return w.vote == '2' and w.token ~= lock.asker and listeners(w.client) == 0
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

-- Nobody is told when a lease runs out. The waiter that is next looks again at that time,
-- which the answer to its ask has named. A waiter that became next after its ask is told to
-- ask once more, unless its next heartbeat comes before that time. If its client seems to
-- have gone, so is the waiter behind it.
--
-- A script that has a lease end earlier than others were told forgets who is informed.
local function inform()
  local place, left = lock.skip or lock.head, LOOKED_AT
  if lock.used == 0 or place == lock.informed or now + lock.longest / 3 <= lock.earliest then
    return
  end
  while place and place <= lock.tail and left > 0 do
    local w = waiter_at(place)
    left = left - 1
    if w and w.alive - patience(w.ttl) + w.ttl / 3 <= lock.earliest then
      return
    elseif w then
      tell(w.client, 'ask ' .. w.token, w.token)
      if not seems_gone(w) then
        return
      end
    end
    place = place + 1
  end
end

-- Whether a waiter is next if those before it, at most a few, are passed over.
local function is_next(place)
  local first = lock.skip or lock.head
  if place - first > NEAR then
    return false
  end
  for p = first, place - 1 do
    local w = waiter_at(p)
    if w and not seems_gone(w) then
      return false
    end
  end
  return true
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
      tell(w.client, 'granted ' .. w.token .. ' ' .. w.ask .. ' ' .. string.match(h.granted, '^%d+ %d+')
        .. (lock.told ~= '-' and ' ' .. lock.told or ''), w.token)
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
  inform()
  return more and 1 or 0
end
