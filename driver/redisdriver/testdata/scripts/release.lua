-- clock.lua: the time, and how long things last.
--
-- Begins every script. A script handles one lock after the other, KEYS[n]; all times are ms
-- of the server's clock. The Go side replaces n by 1 where a script is for one lock, since
-- some proxies want to see literally which key a command is for.
--
-- A lock that nobody waits for is a string, "thin", see thin_acquire.lua. As soon as there
-- is more to remember it is a hash, "fat", see lock.lua.
--
-- To define a function costs as much as to run a small one. So there are few, and what few
-- calls need is defined when one does, see rare.lua. x + 0 is tonumber(x) at half the cost.
--
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[2]  retention: how long, in ms, the key outlives its last use

local n = 1
local unpack = table.unpack or unpack -- Lua 5.4 or 5.1
local retention = tonumber(ARGV[2])
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

-- %.0f would take three times as long. On a server of 32 bits %d is wrong: thin_acquire.lua
-- finds out, and without it nobody has a lock.
local function int(number)
  return string.format('%d', number)
end

-- The lease lasts longer on the server than the holder may believe in it.
local function grace(ttl)
  return ttl >= 10000 and 500 or ttl <= 100 and 5 or math.floor(ttl / 20)
end

-- Numbers for so many fences, or as many as there are, if high was the last one given: the
-- first of them, and how many.
--
-- They lie beyond the last that was given, and not beyond the time in us. So nobody is given
-- numbers faster than the clock gives new ones, and those that are given after the key was
-- lost, by this server or another, are larger than all before. A key that does not know what
-- was given before gives the time alone: what lies before it may have been given. If the
-- clock was set back, numbers go on one at a time.
--
-- The wrong version has each grant reserve as many as were asked for, from the time on. Those
-- of quick grants run ahead of the clock, and what another server grants after a failover is
-- smaller.
local function numbers_after(high, fences)
  local first = now_us + 1 - (high > 0 and fences or 1)
  if first <= high then
    first = high + 1
  end
  return first, first < now_us and now_us + 1 - first or 1
end

-- How long a key lives if what it is used for lasts ms, and high is the last fence. Fences must
-- not repeat although the key is forgotten in the end: if the clock was set back, the key
-- lives until it has caught up with them.
local function lifetime(ms, high)
  if high > now_us or ms < 0 then -- the clock was set back
    ms = math.max(ms, math.floor(high / 1000) - now)
  end
  return retention + ms
end
-- thin_release.lua: give up locks that nobody waits for, or remembers anything of.
--
-- What does not fit in is left to release.lua.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "unsettled tag": 1 if an ask of this token may still be under way, which must find it
--          dead; what the next holder is told of this one, - for what it has said before
--
-- Returns for each lock HELD, as release.lua does where there is no more to do, or nothing yet.

local ARGUMENTS = 2
local HELD = 1
local replies, left = {}, 0
local records = redis.call('MGET', unpack(KEYS))
local lasts

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local high, token
  if records[n] and string.byte(ARGV[4 + at]) == 48 then -- 0
    high, token = string.match(records[n], '^(%d+) %d+ (%S+)')
  end
  local ms
  if token == ARGV[3 + at] then
    lasts = lasts or int(lifetime(0, now_us))
    ms = high + 0 <= now_us and lasts or int(lifetime(0, high + 0))
  end
  -- If this is refused, memory is full. The long way knows how to write all the same.
  if ms and not redis.pcall('SET', KEYS[n], high, 'PX', ms).err then
    replies[n] = HELD
  else
    left = left + 1
  end
end
if left == 0 then
  return replies
end
-- record.lua: what is written of holders and waiters.
--
-- ARGV[1]  wake channels are called this followed by the client's id

-- The record of a holder: "token expires ttl weight tag fence numbers last since client text".
-- tag is what it says of itself to waiters, - for nothing. It was granted so many numbers from
-- fence on, and given others up to last since. client is where to reach it, - for nowhere; if
-- that ends in !, it wants to hear that somebody waits. Few calls look at what comes after the
-- tag, so it is left in one piece: what was granted.
local function holder_read(record) -- nothing if it is none
  local token, expires, ttl, weight, tag, granted = string.match(record, '^(%S+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  return granted and { token = token, expires = expires + 0, ttl = ttl + 0, weight = weight + 0, tag = tag, granted = granted,
    slot = 1, field = 'h:1' }
end

local function holder_record(h)
  return h.token .. string.format(' %d %d %d ', h.expires, h.ttl, h.weight) .. h.tag .. ' ' .. h.granted
end

local function fences_of(h)
  local fence, numbers, last = string.match(h.granted, '^(%d+) (%d+) (%d+)')
  return tonumber(fence), tonumber(numbers), tonumber(last)
end

local NOTICE = 33 -- !

local function client_of(h)
  h.client = h.client or string.match(h.granted, '^%d+ %d+ %d+ %d+ (%S+)') or '-'
  return h.client
end

-- The thin form, see thin_acquire.lua: the last fence, and how much there is to hold and the
-- holder if there is one. Nothing if it is not of that form.
local function thin_read(record)
  local high, limit, holder = string.match(record, '^(%d+) (%d+) (.*)$')
  if holder then
    local h = holder_read(holder)
    return h and high + 0, limit + 0, h
  end
  return tonumber((string.match(record, '^%d+$'))), 0, nil
end

local function thin_record(high, limit, h)
  return int(high) .. ' ' .. int(limit) .. ' ' .. holder_record(h)
end

-- A waiter must ask again within this time or lose its place. A grant may be pushed until
-- then, and still leaves it a third of its TTL to act on.
local function patience(ttl)
  return math.floor(ttl * 2 / 3)
end

-- So many places from the head on, a waiter may become the next without being told.
local NEAR = 8

-- The record of a waiter is "token ask weight ttl fences alive vote client owner text". vote says
-- what it means if nobody listens on the client's channel: 1 nothing (this node never saw anybody
-- listen there), 2 that the client is gone, 3 nothing, and never again (it was passed over once,
-- and turned out to be alive).

local listening = {} -- the number of subscribers on a client's channel, as this node sees it

local function listeners(client)
  if listening[client] == nil then
    local reply = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1] .. client)
    listening[client] = not reply.err and reply[2] and reply[2] + 0 or false
  end
  return listening[client]
end
-- lock.lua: a lock in either form, loaded into one table and saved from it.
--
-- Between load() and save() a script changes nothing in Redis, and reads nothing but records of
-- holders and waiters. So a script that fails before save() has changed nothing, nor has one
-- whose save() is refused. What other clients are to be told is said last.
--
-- A thin lock is explained in thin_acquire.lua. A fat one is a hash with these fields, absent
-- if 0 or nothing:
--
--   high       the last fence that was given
--   limit      how much there is to hold; resized: 1 if resize has set it, so that it is no
--              longer for requests to say
--   owner      on whose behalf all holders hold it, see holders.lua
--   head       first place that may have a waiter; absent when nobody waits
--   tail       last place given out; never goes back while the lock is fat
--   birth      tells this numbering from an earlier one
--   skip       where the next grant starts to look: whoever waits before it was passed over
--   dead       tombstones, "\ntoken until" each
--   life       when the key ends
--   shares     "count used earliest span" if more than one hold it, see load()
--   longest    TTL of any who has waited
--   h:<slot>   a holder; slots are numbered from 1 without a gap
--   w:<place>  a waiter, see record.lua
--   t:<token>  "h<slot>" or "w<place>": where a token stands
--
-- A lock becomes fat when somebody waits, a second one holds it, or there is an owner, a
-- tombstone or a limit that was set. It becomes thin again when it is free, and has none of
-- these: not at every hand-over, for those who take turns would make and unmake it.
--
-- KEYS[n]  lock

local lock    -- what is known of it
local changed -- fields of the hash to write, false for those to delete
local rarely  -- see rare.lua

local AT_ONCE = 1000 -- arguments of a command, an even number; Lua cannot unpack more than 8,000

-- Change a number of the state, or delete it.
local function set(field, value)
  lock[field], changed[field] = value, value and value ~= 0 and int(value) or false
end

-- Give a holder a slot.
local function seat_holder(h, slot)
  local number = slot == 1 and '1' or int(slot)
  h.slot, h.field, lock.holders[slot] = slot, 'h:' .. number, h
  changed[h.field], changed['t:' .. h.token] = holder_record(h), 'h' .. number
end

local function holder_at(slot)
  if not lock.holders[slot] then
    local field = 'h:' .. int(slot)
    local h = holder_read(redis.call('HGET', KEYS[n], field))
    h.slot, h.field, lock.holders[slot] = slot, field, h
  end
  return lock.holders[slot]
end

-- The waiter in a place; false if it has left.
local function waiter_at(place)
  if lock.waiters[place] == nil then
    local field, w = 'w:' .. int(place), false
    local record = redis.call('HGET', KEYS[n], field)
    if record then
      local token, ask, weight, ttl, fences, alive, vote, client, owner, text =
        string.match(record, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%S+) (%S+) (.*)$')
      w = { place = place, field = field, token = token, ask = ask, weight = weight + 0, ttl = ttl + 0, fences = fences,
        alive = alive + 0, vote = vote, client = client, owner = owner, text = text }
    end
    lock.waiters[place] = w
  end
  return lock.waiters[place]
end

-- Load the lock, and where a token stands in it. record is the thin form, or false for none, if
-- that was read before. Returns an error reply if the key is no lock. Beside its fields this
-- leaves in lock:
--
--   count, used      how many hold it, and how much of it
--   earliest, span   no lease ends before this time; no lease that ends then was longer
--   told             what waiters are told of a holder, - for nothing
--   informed         the place of the waiter that knows when the next lease ends
--   mine, place      the holder that the token is; the place where it waits
--
-- Where each.lua saves it, must says whether that is to succeed although memory is full.
local function load(token, record)
  changed = { high = nil, head = nil, tail = nil, birth = nil, life = nil } -- which makes room for 8
  if record == nil then
    record = redis.call('MGET', KEYS[n])[1]
  end
  local h, shares, stands
  if record then
    local high, limit
    high, limit, h = thin_read(record)
    if not high then
      return { err = 'WRONGTYPE ' .. KEYS[n] .. ' is a string, but no lock' }
    end
    lock = { thin = record, tail = 0, life = 0, longest = 0, dead = '', holders = {}, waiters = {}, count = 0, used = 0,
      earliest = 0, span = 0 }
    set('high', high)
    set('limit', limit)
    if h then
      seat_holder(h, 1)
    end
  else
    local v = redis.pcall('HMGET', KEYS[n], 'high', 'limit', 'resized', 'owner', 'head', 'tail', 'birth', 'skip', 'dead',
      'life', 'longest', 'shares', 'h:1', 't:' .. token)
    if v.err then
      return v
    end
    h = v[13] and holder_read(v[13])
    if v[13] and not h then
      return { err = 'WRONGTYPE ' .. KEYS[n] .. ' is a hash, but no lock' }
    end
    lock = { high = (v[1] or 0) + 0, limit = (v[2] or 0) + 0, resized = v[3], owner = v[4] or nil,
      head = v[5] and v[5] + 0 or nil, tail = (v[6] or 0) + 0, birth = v[7] and v[7] + 0, skip = v[8] and v[8] + 0 or nil,
      dead = v[9] or '', life = (v[10] or 0) + 0, longest = (v[11] or 0) + 0, holders = { h or nil }, waiters = {},
      count = 0, used = 0, earliest = 0, span = 0 }
    lock.informed, shares, stands = lock.skip or lock.head, v[12], v[14]
  end
  if shares then
    local count, used, earliest, span = string.match(shares, '^(%d+) (%d+) (%d+) (%d+)$')
    lock.shares, lock.count, lock.used, lock.earliest, lock.span = shares, count + 0, used + 0, earliest + 0, span + 0
  elseif h then
    lock.count, lock.used, lock.earliest, lock.span = 1, h.weight, h.expires, h.ttl + grace(h.ttl)
  end
  lock.told = h and h.tag or '-'
  if h and h.token == token then
    lock.mine = h
  elseif stands then
    local waits, number = string.byte(stands) == 119, tonumber(string.sub(stands, 2)) -- w
    local seat = waits and waiter_at(number) or not waits and number <= lock.count and holder_at(number)
    if not seat or seat.token ~= token then
      changed['t:' .. token] = false -- a failover that lost writes can have given one place to two
    elseif waits then
      lock.place = number
    else
      lock.mine = seat
    end
  end
end

-- Let the key live for as long as something that lasts ms needs it.
local function keep(ms)
  if not lock.needed or ms > lock.needed then
    lock.needed = ms
  end
end

-- Run a command that writes, although memory is full if it must be. Returns the error if that was
-- refused.
local function write(must, ...)
  local reply = redis.pcall(...)
  if must and type(reply) == 'table' and reply.err and string.find(reply.err, 'OOM', 1, true) then
    rarely().write()
    reply = redis.pcall(...)
  end
  return type(reply) == 'table' and reply.err and reply or nil
end

-- Save the lock, although memory is full if it must be. Returns an error reply if that was
-- refused; then nothing was changed.
local function save(must)
  if not (lock.head or lock.resized or lock.owner) and lock.dead == ''
    and (lock.count == 0 or lock.count == 1 and lock.thin) then
    local record = lock.count == 1 and thin_record(lock.high, lock.limit, lock.holders[1]) or int(lock.high)
    if record ~= (lock.thin or '0') or lock.needed then
      local ms = lock.count == 1 and lock.holders[1].expires - now or 0
      return write(must, 'SET', KEYS[n], record, 'PX', int(lifetime(ms, lock.high)))
    end
    return nil
  end

  -- The end of the key moves only when it must; then that suffices for half the retention. It
  -- comes nearer only where it is known how long the last one goes on: somebody else may count on
  -- more.
  local alone, ms, life = not lock.head and lock.count <= 1, lock.needed, nil
  if alone and lock.count == 1 then
    ms = lock.holders[1].expires - now
  elseif alone and next(changed) then
    ms = 0
  elseif lock.thin then -- its end is not noted
    for slot = 1, lock.count do
      ms = math.max(ms or 0, lock.holders[slot].expires - now)
    end
  end
  if ms then
    local lasts = lifetime(ms, lock.high)
    local least = (ms == 0 or lock.resized) and lasts or lasts - retention / 2
    if lock.dead ~= '' then
      least = math.max(least, retention)
    end
    if lock.life < now + least or alone and lock.life > now + lasts then
      life = now + lasts
      set('life', life)
    end
  end

  if lock.count > 1 then
    local shares = string.format('%d %d %d %d', lock.count, lock.used, lock.earliest, lock.span)
    changed.shares = shares ~= lock.shares and shares or nil
  elseif lock.shares then
    changed.shares = false
  end
  local fields, filled, gone = { '', '', '', '', '', '', '', '' }, 0, {} -- which makes room for 8
  for field, value in pairs(changed) do
    if value then
      fields[filled + 1], fields[filled + 2] = field, value
      filled = filled + 2
    elseif not lock.thin then
      gone[#gone + 1] = field
    end
  end
  if lock.thin then
    redis.call('DEL', KEYS[n])
  end
  for from = 1, #gone, AT_ONCE do
    redis.call('HDEL', KEYS[n], unpack(gone, from, math.min(from + AT_ONCE - 1, #gone)))
  end
  local refused
  for from = 1, filled, AT_ONCE do
    -- Only the first can be refused.
    refused = refused or write(must, 'HSET', KEYS[n], unpack(fields, from, math.min(from + AT_ONCE - 1, filled)))
  end
  if life and not refused then
    redis.call('PEXPIRE', KEYS[n], int(life - now))
  end
  return refused
end
-- holders.lua: what it is to hold a lock, for how long, and with which fences.
--
-- All kinds of lock are one: so much of limit can be held. A mutex has 1, a reader holds 1
-- and a writer everything, and of a semaphore each holds what it asked for. On behalf of an
-- owner several tokens hold the same together: then all holders are that owner's, and what
-- they hold counts once.

-- Make a token a holder: w is what it asked for, a waiter or a request.
local function hold(w)
  local length = w.ttl + grace(w.ttl)
  local h = { token = w.token, expires = now + length, ttl = w.ttl, weight = w.weight, tag = '-', client = w.client }
  local owner = w.owner ~= '-' and w.owner or nil
  local fence, numbers, last
  if owner and owner == lock.owner then
    fence, numbers, last = fences_of(lock.holders[1])
    numbers = 1 -- they have one, of all of them
  else
    fence, numbers = numbers_after(lock.high, owner and 1 or w.fences + 0)
    last = fence + numbers - 1
    set('high', last)
    if owner then
      lock.owner, changed.owner = owner, owner
    end
    lock.used = lock.used + h.weight
  end
  h.numbers = string.format('%d %d', fence, numbers)
  h.granted = h.numbers .. string.format(' %d %d ', last, now) .. w.client .. ' ' .. w.text -- %s ends at a NUL
  lock.count = lock.count + 1
  if lock.count == 1 or h.expires < lock.earliest then
    lock.earliest, lock.span = h.expires, length
  end
  seat_holder(h, lock.count)
  keep(length)
  return h
end

-- Make a holder none. The last one takes its slot.
local function remove(h)
  local last = holder_at(lock.count)
  changed['t:' .. h.token], changed[last.field] = false, false
  if last ~= h then
    seat_holder(last, h.slot)
  end
  lock.holders[lock.count] = nil
  lock.count = lock.count - 1
  if lock.count == 0 then
    lock.used, lock.earliest, lock.span = 0, 0, 0
    if lock.owner then
      lock.owner, changed.owner = nil, false
    end
  elseif not lock.owner then
    lock.used = lock.used - h.weight
  end
  if lock.mine == h then
    lock.mine = nil
  end
end
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
-- rare.lua: what few calls need, defined when one does.
--
-- KEYS[n]  lock

local rare

function rarely()
  if rare then
    return rare
  end
  rare = {}

  -- Free the script of the limit of memory: once its first write was one that needs none, it may
  -- write anything.
  function rare.write()
    local ttl = redis.call('PTTL', KEYS[n])
    if ttl > 0 then
      redis.call('PEXPIRE', KEYS[n], int(ttl))
    else
      redis.call('PERSIST', KEYS[n])
    end
  end

  -- Others were given to the holder beyond those that it was granted.
  function rare.set_fences(h, fence, numbers, last)
    h.granted = string.format('%d %d %d', fence, numbers, last) .. string.match(h.granted, '^%d+ %d+ %d+(.*)$')
  end

  -- Look at every lease. None can have more time left than its whole length: if one has, the
  -- server's clock was set back, and the lock must not stay blocked for as long as that.
  function rare.expire()
    local slot, first, span = 1, nil, 0
    while slot <= lock.count do
      local h = holder_at(slot)
      local longest = now + h.ttl + grace(h.ttl)
      if h.expires < now then
        remove(h) -- and look at the one that takes its slot
      else
        if h.expires > longest then
          h.expires = longest
          changed[h.field] = holder_record(h)
        end
        if not first or h.expires < first then
          first, span = h.expires, longest - now
        end
        slot = slot + 1
      end
    end
    if first then
      lock.earliest, lock.span = first, span
    end
  end

  local function set_tombstones(dead)
    if dead ~= lock.dead then
      lock.dead = dead
      changed.dead = dead ~= '' and dead
    end
  end

  -- Throw away old tombstones. The oldest are the first.
  function rare.clear_tombstones()
    local from = 1
    while true do
      local _, last, till = string.find(lock.dead, '^\n%S+ (%d+)', from)
      if not till or tonumber(till) > now then
        break
      end
      from = last + 1
    end
    set_tombstones(string.sub(lock.dead, from))
  end

  -- The tombstone lasts as long as the key. A storm of cancellations must stay cheap, and every
  -- script reads them all; so there is room for about 150. Without its tombstone a straggler may
  -- be granted the lock, and its client gives it back when it hears of that, or it costs the
  -- others a TTL.
  function rare.bury(token)
    rare.clear_tombstones()
    local dead = lock.dead
    local first, last = string.find(dead, '\n' .. token .. ' ', 1, true)
    if first then
      local next = string.find(dead, '\n', last, true)
      dead = string.sub(dead, 1, first - 1) .. (next and string.sub(dead, next) or '')
    end
    dead = dead .. '\n' .. token .. ' ' .. int(now + retention)
    while #dead > 8192 do
      dead = string.gsub(dead, '^\n*[^\n]*', '') -- something, even if it is no tombstone
    end
    set_tombstones(dead)
    keep(0) -- see save
  end

  -- A token that was released while one of its asks was still under way. That ask must not take
  -- the lock when it arrives: nobody would ever release it.
  function rare.has_tombstone(token)
    return string.find(lock.dead, '\n' .. token .. ' ', 1, true) ~= nil
  end

  -- The tokens of the owner that has just got the lock need not wait for each other. They come
  -- in when they ask, so they are told to.
  function rare.call_cotokens(owner, place, left)
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
  function rare.inform()
    local place, left = lock.skip or lock.head, LOOKED_AT
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
  function rare.is_next(place)
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

  return rare
end

-- End the leases whose time is over. To look at them all takes time, so there is a time before
-- which none can be over. Renewals do not move it, but for a single holder; so there is one look
-- in about 2/3 of the shortest TTL, however many they are.
local function expire()
  if lock.count > 0 and (lock.earliest < now or lock.earliest > now + lock.span) then
    rarely().expire()
  end
end
-- release.lua: give up locks that others use, or one's place in their queues.
--
-- Comes after thin_release.lua, which has the arguments.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "unsettled tag"
--
-- Returns for each lock an error, or {status, more}: status NEITHER the token neither held it
-- nor waited, HELD it held it, WAITED it waited; more is 1 if this should be run again, because
-- the queue is longer than what one call looks at. A status alone says that there is no more, and
-- costs less. Or nothing, as acquire.lua does.

local NEITHER, WAITED = 0, 2

local function handle(at)
  local unsettled, tag = string.match(ARGV[4 + at], '^(%d) (.*)$')
  local status, h = NEITHER, lock.mine
  lock.must = true
  expire()
  if h then
    status = HELD
    lock.told = tag ~= '-' and tag or h.tag
    if lock.mine then
      remove(h)
    end
  end
  if lock.place then
    drop_waiter(waiter_at(lock.place))
    status = WAITED
  end
  if unsettled == '1' then
    rarely().bury(ARGV[3 + at])
  end
  local more = grant()
  return more > 0 and { status, more } or status
end
-- each.lua: handle one after the other the locks that the short way has left.
--
-- Comes last in the scripts for many locks. Their short way, thin_acquire.lua or its like, has the
-- arguments, the replies and what was read. What comes before this has handle(at), which is called
-- with where the arguments of a lock begin once it is loaded, and returns the reply.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token

local AT_LENGTH = 8 -- locks in one call, so that no call holds up the server for long

local handled = 0
for i = 1, #KEYS do
  if not replies[i] and handled < AT_LENGTH then
    n, handled = i, handled + 1
    local at = (i - 1) * ARGUMENTS
    -- The short way read all locks before it left the first of them. Should a lock be among
    -- them twice, what was read is out of date for the second. The wrong version loads it
    -- from that, and two hold the lock.
    local record
    if #KEYS == 1 then
      record = records[i]
    end
    replies[i] = load(ARGV[3 + at], record)
    if not replies[i] then
      local reply = handle(at)
      replies[i] = save(lock.must) or reply
    end
  end
end
publish()
for i = 1, #KEYS do
  replies[i] = replies[i] or false
end
return replies
