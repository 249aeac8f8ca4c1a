-- lib/lock.lua: a lock in either form, loaded into one table and saved from it.
--
-- Between load() and save() a script changes nothing in Redis, and reads nothing but records of
-- holders and waiters. So a script that fails before save() has changed nothing, nor has one
-- whose save() is refused. What other clients are to be told is said last.
--
-- For a thin lock see thin_read in record.lua. A fat one is a hash with these fields, absent
-- if 0 or nothing:
--
--   high       the last fence that was given
--   limit      how much there is to hold; resized: 1 if resize has set it, so that it is no
--              longer for requests to say
--   owner      on whose behalf all holders hold it, see hold.lua
--   head       first place that may have a waiter; absent when nobody waits
--   tail       last place given out; never goes back while the lock is fat
--   birth      tells this numbering from an earlier one
--   waiting    how many wait
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
local looked = 0 -- at records of holders and waiters, in this call

local DISTANT = 172800000 -- ms: longer than any lease
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
    looked = looked + 1
    h.slot, h.field, lock.holders[slot] = slot, field, h
  end
  return lock.holders[slot]
end

-- The waiter in a place; false if it has left.
local function waiter_at(place)
  if lock.waiters[place] == nil then
    local field, w = 'w:' .. int(place), false
    local record = redis.call('HGET', KEYS[n], field)
    looked = looked + 1
    if record then
      w = waiter_read(record)
      w.place, w.field = place, field
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
  local high, limit, resized, owner, head, tail, birth, waiting, dead, life, longest, shares, first, stands, h
  if record then
    high, limit, h = thin_read(record)
    if not high then
      return { err = 'WRONGTYPE ' .. KEYS[n] .. ' is a string, but no lock' }
    end
  else
    local fields = redis.pcall('HMGET', KEYS[n], 'high', 'limit', 'resized', 'owner', 'head', 'tail', 'birth', 'waiting', 'dead',
      'life', 'longest', 'shares', 'h:1', 't:' .. token)
    if fields.err then
      return fields
    end
    high, limit, resized, owner, head, tail, birth, waiting, dead, life, longest, shares, first, stands = unpack(fields)
    h = first and holder_read(first)
    if first and not h then
      return { err = 'WRONGTYPE ' .. KEYS[n] .. ' is a hash, but no lock' }
    end
  end
  lock = { thin = record, high = (high or 0) + 0, limit = (limit or 0) + 0, resized = resized, owner = owner or nil,
    head = head and head + 0 or nil, tail = (tail or 0) + 0, birth = birth and birth + 0, waiting = (waiting or 0) + 0,
    dead = dead or '', life = (life or 0) + 0, longest = (longest or 0) + 0, holders = { h or nil }, waiters = {},
    count = 0, used = 0, earliest = 0, span = 0 }
  lock.informed = lock.head
  if record then -- all of it is to be written should it become fat
    set('high', lock.high)
    set('limit', lock.limit)
    if h then
      seat_holder(h, 1)
    end
  else
    lock.absent = not (high or life) and redis.call('EXISTS', KEYS[n]) == 0
  end
  if shares then
    local count, used, earliest, span = match(shares, SHARES)
    lock.shares, lock.count, lock.used, lock.earliest, lock.span = shares, count + 0, used + 0, earliest + 0, span + 0
  elseif h then
    lock.count, lock.used, lock.earliest, lock.span = 1, h.weight, h.expires, h.ttl + grace(h.ttl)
  end
  lock.told = h and h.tag or '-'
  if h and h.token == token then
    lock.mine = h
  elseif stands then
    local waits, number = string.byte(stands) == 119, tonumber(sub(stands, 2)) -- w
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

-- How long a key lives if what it is used for lasts ms, and high is the last fence. Fences must
-- not repeat although the key is forgotten in the end: if the clock was set back, the key
-- lives until it has caught up with them.
--
-- Its end is written as a time, since the clock may be set between the TIME of a script and what it
-- writes. The wrong version says in how many ms the key ends. Then the server counts them from
-- another time than we do, and if the clock was set back the key ends while the lock is in use.
local function lifetime(ms, high)
  if high > now_us or ms < 0 then -- the clock was set back
    ms = math.max(ms, math.floor(high / 1000) - now)
  end
  return retention + ms
end

-- Free the script of the limit of memory: once its first write was one that needs none, it may
-- write anything.
local function free_of_memory()
  local ttl = redis.call('PTTL', KEYS[n])
  -- What is not there stays so. What has no end gets one that is later than all that it keeps.
  redis.call('PEXPIREAT', KEYS[n], int(now + (ttl > 0 and ttl or DISTANT)))
end

-- Run a command that writes, although memory is full if it must be. Returns the error if that was
-- refused.
local function write(must, ...)
  local reply = redis.pcall(...)
  if must and type(reply) == 'table' and reply.err and find(reply.err, 'OOM', 1, true) then
    free_of_memory()
    reply = redis.pcall(...)
  end
  return type(reply) == 'table' and reply.err and reply or nil
end

-- Save the lock, although memory is full if it must be. Returns an error reply if that was
-- refused; then the lock is as it was, but that the key may live longer, or no longer than it must.
--
-- The key of a thin lock that somebody holds ends a retention after the lease, or later. Whatever writes
-- one keeps to that, for short/leave.lua counts on it.
local function save(must)
  if not (lock.head or lock.resized or lock.owner) and lock.dead == ''
    and (lock.count == 0 or lock.count == 1 and (lock.thin or lock.absent)) then
    local record = lock.count == 1 and thin_record(lock.high, lock.limit, lock.holders[1]) or int(lock.high)
    if record ~= (lock.thin or '0') or lock.needed then
      local _, _, before = thin_read(lock.thin or '')
      if lock.count == 0 and before and before.ttl <= retention then -- its end will do, see short/leave.lua
        return write(must, 'SET', KEYS[n], record, 'KEEPTTL')
      end
      local ms = lock.count == 1 and lock.holders[1].expires - now or 0
      return write(must, 'SET', KEYS[n], record, 'PXAT', int(now + lifetime(ms, lock.high)))
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
      changed.life = int(life)
    end
  end

  if lock.count > 1 then
    local shares = format('%d %d %d %d', lock.count, lock.used, lock.earliest, lock.span)
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
  -- A server may refuse one of these commands and not another, as for a user that lacks the right to
  -- it. Nothing knows any more what HSET has written over. So what comes after HSET is first run to
  -- no effect: HDEL of no field, and PEXPIREAT not to bring the end nearer. Either frees the script of
  -- the limit of memory, so for a newcomer an HSET to no effect comes before that.
  --
  -- If the clock is set forward just now, that end may be over, and the key goes. Then HSET makes one
  -- without an end, which the last PEXPIREAT takes away. The wrong version had none where the end moved away.
  local refused
  if lock.thin then
    refused = write(true, 'SET', KEYS[n], lock.thin, 'KEEPTTL') -- which must be able to put it back
    if not refused then
      redis.call('DEL', KEYS[n])
    end
  elseif not lock.absent then
    refused = life and not gone[1] and not must and write(must, 'HSET', KEYS[n], 'life', int(lock.life))
      or gone[1] and filled > 0 and write(must, 'HDEL', KEYS[n], '')
      or life and write(must, 'PEXPIREAT', KEYS[n], int(math.max(life, lock.life)))
  end
  for from = 1, filled, AT_ONCE do
    refused = refused or write(must, 'HSET', KEYS[n], unpack(fields, from, math.min(from + AT_ONCE - 1, filled)))
  end
  for from = 1, #gone, AT_ONCE do
    refused = refused or write(must, 'HDEL', KEYS[n], unpack(gone, from, math.min(from + AT_ONCE - 1, #gone)))
  end
  if life and not refused then
    refused = write(must, 'PEXPIREAT', KEYS[n], int(life))
  end
  if refused and lock.thin then
    local _, _, h = thin_read(lock.thin)
    redis.pcall('SET', KEYS[n], lock.thin, 'PXAT', int(now + lifetime(h and h.expires - now or 0, lock.high)))
  elseif refused and lock.absent then
    redis.pcall('DEL', KEYS[n])
  end
  return refused
end
