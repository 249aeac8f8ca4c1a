-- acquire.lua: take locks that others use, or wait for them, or say that one still waits.
--
-- Comes after thin_acquire.lua, which has the arguments, and thin_wait.lua, which writes down who
-- waits.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock: token
-- ARGV[4]  "ask birth place"
-- ARGV[5]  what it asks for
--
-- Returns for each lock an error, or
--
--   {BURIED}                               the token was released before
--   {BUSY, ms, more, 0, 0, tag}            it is taken
--   {QUEUED, ms, more, birth, place, tag}  the token waits for it
--   {GRANTED, fence, more, numbers}        the token holds it, with so many fences from that on
--   {EXCEEDED, limit, more}                the weight is more than the limit
--   {CONFLICT, limit, more}                it is in use with another limit
--
-- or nothing if it is to be asked for again, as this call has taken long enough. ms is the time
-- after which to look again, 0 for none in particular. more is 1 if the queue is longer than
-- what one call looks at: ask again at once. tag is what a holder says of itself; if
-- anybody holds it, the time and what was granted come after that, see record.lua.

local BURIED, BUSY, GRANTED, EXCEEDED, CONFLICT = 0, 1, 3, 4, 5

local function granted(more)
  local fence, numbers = fences_of(lock.mine)
  return { GRANTED, fence, more, numbers }
end

local function whose()
  local h = lock.holders[1]
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
  w.vote = (listeners(w.client) or 0) > 0 and '2' or '1'
  keep(patience(w.ttl))
  if w.ttl > lock.longest then
    set('longest', w.ttl)
  end
  local known = lock.place
  if known then
    local before = waiter_at(known)
    if before.ask + 0 > w.ask + 0 then
      return
    end
    if lock.skip and known < lock.skip then
      w.vote = '3'
      set('skip', nil)
    elseif before.vote == '3' then
      w.vote = '3'
    end
  else
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
  local w, ask, birth, place = wishes[ARGV[5 + at]], string.match(ARGV[4 + at], '^(%d+) (%d+) (%d+)$')
  w.token, w.ask = ARGV[3 + at], ask
  lock.asker = w.token
  lock.must = lock.mine or lock.place -- a newcomer may be refused for lack of memory
  if lock.dead ~= '' then
    if rarely().has_tombstone(w.token) then
      return { BURIED }
    end
    rarely().clear_tombstones()
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

  local more, mine = 0, nil
  if w.wait and (lock.head or w.weight > lock.limit - lock.used) then
    enqueue(w, birth + 0, place + 0)
    mine = lock.place -- also if this ask is an old one, and the waiter is overdue
    -- A heartbeat also finds the head, if who stood there has left.
    if lock.used < lock.limit or ask ~= '1' then
      more = grant()
    end
  else
    -- A token that does not wait has no place, so it must not overtake those that have one.
    more = grant()
    if not lock.head and w.weight <= lock.limit - lock.used then
      lock.mine = hold(w)
    end
  end
  if not lock.mine and join(w) then
    more = grant() -- the place that it had is empty now
  end
  if lock.mine then
    return granted(more)
  end
  if not w.wait then
    return { BUSY, lock.used > 0 and lock.earliest - now + 1 or 0, more, 0, 0, whose() }
  end
  local first = mine == (lock.skip or lock.head)
  if first then
    notify()
  end
  -- Nobody is told when a lease runs out. A waiter that is next looks again at that time.
  local looks = lock.used > 0 and (first or lock.head and now + w.ttl / 3 > lock.earliest and rarely().is_next(mine))
  return { QUEUED, looks and lock.earliest - now + 1 or 0, more, lock.birth, mine, whose() }
end
