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
-- thin_acquire.lua: take locks that nobody holds, waits for, or remembers anything of.
--
-- Such a lock is absent, or a string: "high", the last fence that was given. Held by one
-- token, to which the last fences were given, it is
--
--   high limit token expires ttl weight tag fence numbers last since client text
--
-- for which see record.lua. This is all that most locks ever are: read once, written once.
-- What does not fit in is left to acquire.lua.
--
-- An argument costs as much as a read, so there are few. Those who ask together mostly ask for
-- the same, and a text that several have in common is taken apart once.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token
-- ARGV[4]  "ask birth place": number of this attempt; what this token was told before, else 0
-- ARGV[5]  "ttl fences wait weight limit client owner text": TTL in ms; how many fences may be of
--          use; 1 to queue when the lock is taken; how much to take; how much there is to hold,
--          in the opinion of the request; client to push the grant to, - for none; owner on
--          whose behalf it asks, - for none; text about the holder. Only that may have spaces.
--
-- Returns for each lock "fence numbers", which stands for acquire.lua's {GRANTED, fence, 0, numbers}
-- as a list would cost more, or an error, or nothing yet.

local ARGUMENTS = 3
local replies, left, taken, wishes = {}, 0, {}, {}
local records = redis.call('MGET', unpack(KEYS))
local now_us_text = int(now_us)
if #now_us_text < 12 then
  return { err = 'ERR this is a Redis server of 32 bits, which cannot keep locks' }
end

for n = 1, #KEYS do
  local at = (n - 1) * ARGUMENTS
  local wish = wishes[ARGV[5 + at]]
  if not wish then
    local ttl, fences, wait, weight, limit, client, owner, text =
      string.match(ARGV[5 + at], '^(%d+) (%d+) (%d) (%d+) (%d+) (%S+) (%S+) (.*)$')
    wish = { ttl = ttl + 0, fences = fences, wait = wait == '1', weight = weight + 0, limit = limit + 0, client = client,
      owner = owner, text = text, numbers = fences + 0, ttl_text = ttl, weight_text = weight }
    wishes[ARGV[5 + at]] = wish
  end
  if not records[n] and string.sub(ARGV[4 + at], -2) == ' 0' and redis.call('EXISTS', KEYS[n]) == 0 then
    records[n] = '0'
  end
  local high = records[n] and not taken[KEYS[n]] and not string.find(records[n], '%D')
    and tonumber(records[n]) -- nothing if somebody holds it, or it is no lock
  if high and high < 2 ^ 53 and wish.owner == '-' and wish.weight <= wish.limit then
    if not wish.length then -- what all records of this wish have in common
      local length = wish.ttl + grace(wish.ttl)
      wish.length, wish.lasts = length, int(lifetime(length, now_us))
      wish.before = ' ' .. int(wish.limit) .. ' '
      wish.within = ' ' .. int(now + length) .. ' ' .. wish.ttl_text .. ' ' .. wish.weight_text .. ' - '
      wish.after = ' ' .. int(now) .. ' ' .. wish.client .. ' ' .. wish.text
    end
    local first, numbers = numbers_after(high, wish.numbers)
    local last = first + numbers - 1
    local last_text = last == now_us and now_us_text or int(last)
    local granted = (numbers == 1 and last_text or int(first)) .. ' '
      .. (numbers == wish.numbers and wish.fences or int(numbers))
    local record = last_text .. wish.before .. ARGV[3 + at] .. wish.within .. granted .. ' ' .. last_text .. wish.after
    local reply = redis.pcall('SET', KEYS[n], record, 'PX', last <= now_us and wish.lasts or int(lifetime(wish.length, last)))
    replies[n], taken[KEYS[n]] = reply.err and reply or granted, true
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
-- lease.lua: how a lease is made to last longer.
--
-- KEYS[n]  lock

-- Every "you hold it" gives the full TTL again, because the holder's trust starts from the
-- ask that this answers. It takes nothing away: a late ask knows nothing of a renewal for
-- longer.
local function extend(h, ttl)
  h.ttl = math.max(ttl, h.ttl)
  h.expires = math.max(h.expires, now + h.ttl + grace(h.ttl))
  changed[h.field] = holder_record(h)
  -- The lease of the only holder is the earliest to end, and that of others may be.
  if lock.count == 1 or h.expires < lock.earliest then
    lock.earliest, lock.span = h.expires, h.ttl + grace(h.ttl)
  end
  keep(h.expires - now)
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
