-- lock.lua: a lock in either form, loaded into one table and saved from it.
--
-- Between load() and save() a script changes nothing in Redis, and reads nothing but records
-- of holders and waiters. So a script that fails before save() has changed nothing, and one
-- whose save() is refused neither. What is to be said to other clients is said last.
--
-- A thin lock is explained in thin_acquire.lua. A fat one is a hash with these fields:
--
--   lock        its state, see state()
--   h:<slot>    a holder; slots are numbered from 1 without a gap
--   w:<place>   a waiter, see queue.lua
--   t:<token>   "h<slot>" or "w<place>": where a token stands
--   dead        tombstones, "\ntoken until" each
--
-- A lock becomes fat when somebody waits, a second one holds, or there is an owner, a
-- tombstone or a limit that was set. It becomes thin again when it is free, and has none of
-- these: not at every hand-over, for those who take turns would make and unmake it.
--
-- KEYS[n]  lock

local lock    -- the state, see load
local changed -- fields of the hash to write, false for those to delete

local unpack = table.unpack or unpack -- Lua 5.4 or 5.1

local function put_holder(h)
  changed['h:' .. int(h.slot)] = holder_record(h)
end

-- Give a holder a slot.
local function seat_holder(h, slot)
  h.slot, lock.holders[slot] = slot, h
  put_holder(h)
  changed['t:' .. h.token] = 'h' .. int(slot)
end

local function holder_at(slot)
  if not lock.holders[slot] then
    local h = holder_read(string.match(redis.call('HGET', KEYS[n], 'h:' .. int(slot)), '^' .. HOLDER))
    h.slot, lock.holders[slot] = slot, h
  end
  return lock.holders[slot]
end

-- The waiter in a place, see queue.lua; false if it has left.
local function waiter_at(place)
  if lock.waiters[place] == nil then
    local record, w = redis.call('HGET', KEYS[n], 'w:' .. int(place)), false
    if record then
      w = { place = place }
      w.token, w.ask, w.weight, w.ttl, w.fences, w.alive, w.vote, w.client, w.owner, w.text =
        string.match(record, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%S+) (%S+) (.*)$')
      w.ask, w.weight, w.ttl, w.fences, w.alive = tonumber(w.ask), tonumber(w.weight), tonumber(w.ttl),
        tonumber(w.fences), tonumber(w.alive)
    end
    lock.waiters[place] = w
  end
  return lock.waiters[place]
end

local function place_or_nil(text)
  return text ~= '0' and tonumber(text) or nil
end

-- The thin form, as one of its own or of none.
local function load_thin(record)
  local high, limit, rest = string.match(record, '^(%d+) ?(%d*) ?(.*)$')
  if not high then
    return { err = 'WRONGTYPE ' .. KEYS[n] .. ' is a string, but no lock' }
  end
  lock = { thin = true, was = record, high = tonumber(high), limit = tonumber(limit) or 0, used = 0, count = 0,
    earliest = 0, span = 0, tail = 0, birth = 0, life = 0, owner = '-', dead = '', holders = {}, waiters = {} }
  if rest ~= '' then
    local h = holder_read(string.match(rest, '^' .. HOLDER))
    lock.count, lock.used, lock.earliest, lock.span = 1, h.weight, h.expires, h.ttl + grace(h.ttl)
    seat_holder(h, 1)
  end
end

local function load_fat(token)
  local fields = redis.pcall('HMGET', KEYS[n], 'lock', 'dead', 'h:1', 't:' .. token)
  if fields.err then
    return fields
  end
  local high, limit, resized, used, count, earliest, span, head, tail, birth, skip, life, owner = string.match(
    fields[1] or '0 0 0 0 0 0 0 0 0 0 0 0 -',
    '^(%d+) (%d+) (%d) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+)$')
  lock = { was = fields[1], high = tonumber(high), limit = tonumber(limit), resized = resized == '1',
    used = tonumber(used), count = tonumber(count), earliest = tonumber(earliest), span = tonumber(span),
    head = place_or_nil(head), tail = tonumber(tail), birth = tonumber(birth), skip = place_or_nil(skip),
    life = tonumber(life), owner = owner, dead = fields[2] or '', holders = {}, waiters = {} }
  lock.informed = lock.skip or lock.head
  if fields[3] then
    lock.holders[1] = holder_read(string.match(fields[3], '^' .. HOLDER))
    lock.holders[1].slot = 1
  end
  lock.stands = fields[4]
end

-- Load the lock, and where a token stands in it. record is the thin form if it was read
-- before. Returns an error reply if the key is no lock. Leaves in lock:
--
--   high             the last fence that was given, 0 if that is not known
--   used, limit      how much is held, and how much there is to hold
--   resized          resize has set the limit: it is no longer for requests to say
--   count            how many hold it
--   earliest, span   no lease ends before this time; no lease that ends then was longer
--   head             first place that may have a waiter, nil when nobody waits
--   tail             last place given out; never goes back while the lock is fat
--   birth            tells this numbering from an earlier one
--   skip             where the next grant starts to look: whoever waits before it was passed
--                    over; nil when nobody was
--   informed         the place of the waiter that knows when the next lease ends
--   life             when the key ends
--   owner            on whose behalf its holders hold it, see holders.lua; - on nobody's
--   dead             tombstones
--   told             what waiters are told of a holder, - for nothing
--   mine, place      the holder that the token is; the place where it waits
local function load(token, record)
  changed = {}
  record = record or redis.call('MGET', KEYS[n])[1]
  local refused
  if record then
    refused = load_thin(record)
  else
    refused = load_fat(token)
  end
  if refused then
    return refused
  end
  local first, stands = lock.holders[1], lock.stands
  lock.told = first and first.tag or '-'
  if first and first.token == token then
    lock.mine = first
  elseif stands then
    local number = tonumber(string.sub(stands, 2))
    local waits = string.byte(stands) == 119 -- w
    local seat = waits and waiter_at(number) or not waits and number <= lock.count and holder_at(number)
    if not seat or seat.token ~= token then
      changed['t:' .. token] = false -- a failover that lost writes can have given one place to two
    elseif seat.slot then
      lock.mine = seat
    else
      lock.place = number
    end
  end
end

-- Let the key live for as long as something that lasts ms needs it.
local function keep(ms)
  lock.needed = math.max(lock.needed or 0, ms)
end

-- Run a command that writes. If it must succeed although memory is full: a script whose first
-- write is one that needs no memory may write anything after it. Returns the error if not.
local function write(must, ...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err and must and string.find(reply.err, 'OOM', 1, true) then
    redis.call('PEXPIRE', KEYS[n], int(math.max(1, redis.call('PTTL', KEYS[n]))))
    reply = redis.pcall(...)
  end
  return type(reply) == 'table' and reply.err and reply or nil
end

-- Returns when the key is to end, or nothing if that may stay as it is. The end moves only
-- when it must; then that suffices for half the retention. It comes nearer only where it is
-- known how long the last one goes on: somebody else may count on more.
local function end_of_key()
  local alone, ms = not lock.head and lock.count <= 1, lock.needed
  if alone and lock.count == 1 then
    ms = lock.holders[1].expires - now
  elseif alone and next(changed) then
    ms = 0
  end
  if ms then
    local life = lifetime(ms, lock.high)
    local least = (ms == 0 or lock.resized) and life or math.max(life - retention / 2, lock.dead ~= '' and retention or 0)
    if lock.life < now + least or alone and lock.life > now + life then
      return now + life
    end
  end
end

-- Save the lock, although memory is full if it must be. Returns an error reply if that was
-- refused; then nothing was changed.
local function save(must)
  if not (lock.head or lock.resized) and lock.dead == '' and lock.owner == '-'
    and (lock.count == 0 or lock.count == 1 and lock.thin) then
    local record = int(lock.high)
    if lock.count == 1 then
      record = record .. ' ' .. int(lock.limit) .. ' ' .. holder_record(lock.holders[1])
    end
    if record ~= (lock.was or '0') or lock.needed then
      local ms = lock.count == 1 and lock.holders[1].expires - now or 0
      return write(must, 'SET', KEYS[n], record, 'PX', int(lifetime(ms, lock.high)))
    end
    return nil
  end
  local life = end_of_key()
  lock.life = life or lock.life
  local state = string.format('%.0f %.0f %s %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f ', lock.high, lock.limit,
    lock.resized and '1' or '0', lock.used, lock.count, lock.earliest, lock.span, lock.head or 0, lock.tail, lock.birth,
    lock.skip or 0, lock.life) .. lock.owner
  local fields, gone = {}, {}
  if state ~= lock.was then
    fields[1], fields[2] = 'lock', state
  end
  for field, value in pairs(changed) do
    if value then
      fields[#fields + 1], fields[#fields + 2] = field, value
    elseif not lock.thin then
      gone[#gone + 1] = field
    end
  end
  local refused
  if lock.thin then
    redis.call('DEL', KEYS[n])
  elseif #gone > 0 then
    redis.call('HDEL', KEYS[n], unpack(gone))
  end
  if #fields > 0 then
    refused = write(must, 'HSET', KEYS[n], unpack(fields))
  end
  if life and not refused then
    redis.call('PEXPIRE', KEYS[n], int(life - now))
  end
  return refused
end
