-- op/acquire.lua: take locks that others use, or wait for them, or say that one still waits.
--
-- The short way, short/acquire.lua, does the same for most calls. Those who ask
-- together mostly ask for the same: there is one text for all that several have in common.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "ask birth place": number of this attempt; what this token was told before, else 0
-- ARGV[5]  "ttl fences room weight limit owner client text": TTL in ms; how many fences may be of
--          use; how many may wait if this one comes to wait, too, 0 not to queue; how much to
--          take; how much there is to hold, in the opinion of the request; owner on whose
--          behalf it asks, - for none; client to push the grant to, - for none; text about the
--          holder. Only that may have spaces.
--
-- Returns for each lock an error, or
--
--   {BURIED}                               the token was released before
--   {BUSY, ms, more, 0, 0, tag}            it is taken
--   {FULL, ms, more, 0, 0, tag}            it is taken, and as many wait as may
--   {QUEUED, ms, more, birth, place, tag}  the token waits for it; "waits ms birth place tag" says that
--                                          there is no more, and costs less
--   {GRANTED, fence, more, numbers}        the token holds it, with so many fences from that on;
--                                          "fence numbers" says that there is no more, and costs less
--   {EXCEEDED, limit, more}                the weight is more than the limit
--   {CONFLICT, limit, more}                it is in use with another limit
--
-- or nothing if it is to be asked for again, as this call has taken long enough. ms is the time
-- after which to look again, 0 for none in particular. more is 1 if the queue is longer than
-- what one call looks at: ask again at once. tag is what a holder says of itself; if a
-- holder is in the way, the time and what was granted come after that, see record.lua.

local BURIED, BUSY, QUEUED, GRANTED, EXCEEDED, CONFLICT, FULL = 0, 1, 2, 3, 4, 5, 6

local function granted(more)
  local fence, numbers = fences_of(lock.mine)
  return more > 0 and { GRANTED, fence, more, numbers } or int(fence) .. ' ' .. int(numbers)
end

local function whose(w)
  local h = w.weight > lock.limit - lock.used and lock.holders[1] -- else waiters are in the way, no holder is
  return h and lock.told .. ' ' .. int(now) .. ' ' .. h.granted or lock.told
end

-- A token whose owner has the lock comes in beside the others of that owner, and does not wait
-- behind those who wait for them.
local function join(w)
  if w.owner == '-' or w.owner ~= lock.owner then
    return false
  end
  if lock.place then
    drop_waiter(waiter_at(lock.place))
  end
  lock.mine = hold(w)
  if lock.head then
    notify() -- the waiters have told another
  end
  return true
end

-- The first to use a lock that is unused says what its limit is.
local function agree(limit)
  if lock.used == 0 and not lock.head and not lock.resized and lock.limit ~= limit then
    set('limit', limit)
  end
  return lock.resized or lock.limit == limit
end

-- Join the queue, or say again that one is waiting. A waiter whose record was dropped while it
-- was cut off comes back to its old place, if the numbering is still the one that gave the place
-- out.
local function enqueue(w, birth, place)
  w.heard, w.alive = (listeners(w.client) or 0) > 0 and '1' or '0', now + patience(w.ttl)
  keep(patience(w.ttl))
  if w.ttl > lock.longest then
    set('longest', w.ttl)
  end
  local known = lock.place
  if known then
    if waiter_at(known).ask + 0 > w.ask + 0 then
      return
    end
  else
    set('waiting', lock.waiting + 1)
    if not (place > 0 and birth == lock.birth and place <= lock.tail and not waiter_at(place)) then
      if not lock.birth then
        set('birth', now_us)
      end
      set('tail', lock.tail + 1)
      place = lock.tail
    end
    lock.place = place
    if not lock.head or place < lock.head then
      set('head', place)
    end
  end
  local number = int(lock.place)
  w.place, w.field, lock.waiters[lock.place] = lock.place, 'w:' .. number, w
  changed[w.field] = waiter_record(w)
  if not known then
    changed['t:' .. w.token] = 'w' .. number
  end
end

local function handle(at)
  local ask, birth, place = match(ARGV[4 + at], '^(%d+) (%d+) (%d+)$')
  local ttl, fences, room, weight, limit, owner, client, text =
    match(ARGV[5 + at], '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (.*)$')
  local w = { token = ARGV[3 + at], ask = ask, ttl = ttl + 0, fences = fences, room = room + 0, wait = room ~= '0',
    weight = weight + 0, limit = limit + 0, client = client, owner = owner, text = text }
  lock.asker = w.token
  lock.must = lock.mine or lock.place -- a newcomer may be refused for lack of memory
  if lock.dead ~= '' then
    if has_tombstone(w.token) then
      return { BURIED }
    end
    clear_tombstones()
  end
  expire()
  if lock.mine then
    extend(lock.mine, w.ttl)
    return granted(grant())
  end
  if join(w) then
    return granted(grant())
  end
  if not agree(w.limit) then
    -- Others use the lock with their limit. But perhaps they are all dead.
    local more = grant()
    if not agree(w.limit) then
      return { CONFLICT, lock.limit, more }
    end
  end
  if w.weight > lock.limit then
    if lock.place then -- it waited before the limit was lowered
      drop_waiter(waiter_at(lock.place))
    end
    return { EXCEEDED, lock.limit, grant() }
  end

  local more, mine, full = 0, nil, false
  if w.wait and lock.waiting >= w.room and not lock.place then
    drop_dead() -- nobody is turned away because of them
    grant()
    full = lock.waiting >= w.room
  end
  if w.wait and not full and (lock.head or w.weight > lock.limit - lock.used) then
    enqueue(w, birth + 0, place + 0)
    mine = lock.place -- also if this ask is an old one, and the waiter is overdue
    -- A heartbeat also finds the head, if who stood there has left, and that may be of use before
    -- the next one.
    if lock.used < lock.limit or ask ~= '1' and now + w.ttl / 3 > lock.earliest then
      more = grant()
    end
  else
    -- A token that does not wait has no place, so it must not overtake those that have one.
    -- If it waited before, this may have been its turn.
    more = grant()
    if not lock.mine and not lock.head and w.weight <= lock.limit - lock.used then
      lock.mine = hold(w)
    end
  end
  if not lock.mine and join(w) then
    more = grant() -- the place that it had is empty now
  end
  if lock.mine then
    return granted(more)
  end
  if full or not w.wait then
    return { full and FULL or BUSY, lock.used > 0 and lock.earliest - now + 1 or 0, more, 0, 0, whose(w) }
  end
  local first = mine == lock.head
  if first then
    notify()
  end
  -- Nobody is told when a lease runs out. A waiter that is next looks again at that time.
  local looks = lock.used > 0 and (first or now + w.ttl / 3 > lock.earliest and is_next(mine))
  local ms = looks and lock.earliest - now + 1 or 0
  if more == 0 then
    return 'waits ' .. int(ms) .. ' ' .. int(lock.birth) .. ' ' .. int(mine) .. ' ' .. whose(w)
  end
  return { QUEUED, ms, more, lock.birth, mine, whose(w) }
end
