-- lib/begin.lua
local n = 1
local unpack = table.unpack or unpack
local find, match, sub, format = string.find, string.match, string.sub, string.format
local retention = ARGV[2] + 0
-- lib/locks.lua
local ARGUMENTS = math.floor((#ARGV - 2) / #KEYS)
local at_length = ARGV[3 + #KEYS * ARGUMENTS]
local replies, left = {}, #KEYS
local records = redis.call('MGET', unpack(KEYS))
local passed = {}
-- lib/time.lua
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local HOLDER = '^(%S+) (%d+) (%d+) (%d+) (%S+) (.*)$'
local SHARES = '^(%d+) (%d+) (%d+) (%d+)$'
local function int(number)
return format('%d', number)
end
local function grace(ttl)
return ttl >= 10000 and 500 or ttl <= 100 and 5 or math.floor(ttl / 20)
end
local function patience(ttl)
return math.floor(ttl * 2 / 3)
end
-- short/renew.lua
do
local HELD = 1
for n = 1, #KEYS do
local at = (n - 1) * ARGUMENTS
local before, high, token, expires, ttl, weight, tag, granted =
match(records[n] or '', '^((%d+) %d+ (%S+)) (%d+) (%d+) (%d+) (%S+) (.*)$')
if token == ARGV[3 + at] and not passed[KEYS[n]] and granted and #high <= 16 and #ttl <= 16 and high + 0 <= now_us
and expires + 0 >= now and expires + 0 <= now + ttl + grace(ttl + 0) then
local asked = ARGV[4 + at]
ttl = asked + 0 > ttl + 0 and asked or ttl
tag = ARGV[5 + at] ~= '-' and ARGV[5 + at] or tag
local length = ttl + grace(ttl + 0)
if not redis.pcall('SET', KEYS[n], before .. ' ' .. int(now + length) .. ' ' .. ttl .. ' ' .. weight .. ' ' .. tag .. ' ' .. granted,
'PXAT', int(now + retention + length)).err then
replies[n], left = HELD, left - 1
passed[KEYS[n]] = true
end
end
end
end
if left == 0 then
return replies
end
-- lib/record.lua
local function holder_read(record)
local token, expires, ttl, weight, tag, granted = match(record, HOLDER)
return granted and { token = token, expires = expires + 0, ttl = ttl + 0, weight = weight + 0, tag = tag, granted = granted,
slot = 1, field = 'h:1' }
end
local function holder_record(h)
return h.token .. format(' %d %d %d ', h.expires, h.ttl, h.weight) .. h.tag .. ' ' .. h.granted
end
local function fences_of(h)
local fence, numbers = match(h.granted, '^(%d+) (%d+)')
return tonumber(fence), tonumber(numbers)
end
local NOTICE = 33
local function client_of(h)
h.client = h.client or match(h.granted, '^%d+ %d+ %d+ (%S+)') or '-'
return h.client
end
local function thin_read(record)
local high, limit, holder = match(record, '^(%d+) (%d+) (.*)$')
if holder then
local h = holder_read(holder)
return h and high + 0, limit + 0, h
end
return tonumber((match(record, '^%d+$'))), 0, nil
end
local function thin_record(high, limit, h)
return int(high) .. ' ' .. int(limit) .. ' ' .. holder_record(h)
end
local function waiter_read(record)
local token, ask, weight, ttl, fences, alive, heard, client, owner, text =
match(record, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%S+) (%S+) (.*)$')
return { token = token, ask = ask, weight = weight + 0, ttl = ttl + 0, fences = fences, alive = alive + 0, heard = heard,
client = client, owner = owner, text = text }
end
local function waiter_record(w)
return w.token .. ' ' .. w.ask .. format(' %d %d ', w.weight, w.ttl) .. w.fences .. ' ' .. int(w.alive) .. ' '
.. w.heard .. ' ' .. w.client .. ' ' .. w.owner .. ' ' .. w.text
end
local function channel(client)
return ARGV[1] .. match(client, '^[^.!]*')
end
local listening = {}
local function listeners(client)
if listening[client] == nil then
local reply = redis.pcall('PUBSUB', 'NUMSUB', channel(client))
listening[client] = not reply.err and reply[2] and reply[2] + 0 or false
end
return listening[client]
end
-- lib/lock.lua
local lock
local changed
local looked = 0
local DISTANT = 172800000
local AT_ONCE = 1000
local function set(field, value)
lock[field], changed[field] = value, value and value ~= 0 and int(value) or false
end
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
local function load(token, record)
changed = { high = nil, head = nil, tail = nil, birth = nil, life = nil }
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
if record then
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
local waits, number = string.byte(stands) == 119, tonumber(sub(stands, 2))
local seat = waits and waiter_at(number) or not waits and number <= lock.count and holder_at(number)
if not seat or seat.token ~= token then
changed['t:' .. token] = false
elseif waits then
lock.place = number
else
lock.mine = seat
end
end
end
local function keep(ms)
if not lock.needed or ms > lock.needed then
lock.needed = ms
end
end
local function lifetime(ms, high)
if high > now_us or ms < 0 then
ms = math.max(ms, math.floor(high / 1000) - now)
end
return retention + ms
end
local function free_of_memory()
local ttl = redis.call('PTTL', KEYS[n])
redis.call('PEXPIREAT', KEYS[n], int(now + (ttl > 0 and ttl or DISTANT)))
end
local function write(must, ...)
local reply = redis.pcall(...)
if must and type(reply) == 'table' and reply.err and find(reply.err, 'OOM', 1, true) then
free_of_memory()
reply = redis.pcall(...)
end
return type(reply) == 'table' and reply.err and reply or nil
end
local function save(must)
if not (lock.head or lock.resized or lock.owner) and lock.dead == ''
and (lock.count == 0 or lock.count == 1 and (lock.thin or lock.absent)) then
local record = lock.count == 1 and thin_record(lock.high, lock.limit, lock.holders[1]) or int(lock.high)
if record ~= (lock.thin or '0') or lock.needed then
local _, _, before = thin_read(lock.thin or '')
if lock.count == 0 and before and before.ttl <= retention then
return write(must, 'SET', KEYS[n], record, 'KEEPTTL')
end
local ms = lock.count == 1 and lock.holders[1].expires - now or 0
return write(must, 'SET', KEYS[n], record, 'PXAT', int(now + lifetime(ms, lock.high)))
end
return nil
end
local alone, ms, life = not lock.head and lock.count <= 1, lock.needed, nil
if alone and lock.count == 1 then
ms = lock.holders[1].expires - now
elseif alone and next(changed) then
ms = 0
elseif lock.thin then
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
local fields, filled, gone = { '', '', '', '', '', '', '', '' }, 0, {}
for field, value in pairs(changed) do
if value then
fields[filled + 1], fields[filled + 2] = field, value
filled = filled + 2
elseif not lock.thin then
gone[#gone + 1] = field
end
end
local refused
if lock.thin then
refused = write(true, 'SET', KEYS[n], lock.thin, 'KEEPTTL')
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
-- lib/hold.lua
local function numbers_after(high, fences)
local first = now_us + 1 - (high > 0 and fences or 1)
if first <= high then
first = high + 1
end
return first, first < now_us and now_us + 1 - first or 1
end
local function hold(w)
local length = w.ttl + grace(w.ttl)
local h = { token = w.token, expires = now + length, ttl = w.ttl, weight = w.weight, tag = '-', client = w.client }
local owner = w.owner ~= '-' and w.owner or nil
local fence, numbers
if owner and owner == lock.owner then
fence, numbers = fences_of(lock.holders[1]), 1
else
fence, numbers = numbers_after(lock.high, owner and 1 or w.fences + 0)
set('high', fence + numbers - 1)
if owner then
lock.owner, changed.owner = owner, owner
end
lock.used = lock.used + h.weight
end
h.numbers = format('%d %d', fence, numbers)
h.granted = h.numbers .. format(' %d ', now) .. w.client .. ' ' .. w.text
lock.count = lock.count + 1
if lock.count == 1 or h.expires < lock.earliest then
lock.earliest, lock.span = h.expires, length
end
seat_holder(h, lock.count)
keep(length)
return h
end
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
local function extend(h, ttl)
h.ttl = math.max(ttl, h.ttl)
h.expires = math.max(h.expires, now + h.ttl + grace(h.ttl))
changed[h.field] = holder_record(h)
if lock.count == 1 or h.expires < lock.earliest then
lock.earliest, lock.span = h.expires, h.ttl + grace(h.ttl)
end
keep(h.expires - now)
end
-- lib/expiry.lua
local function expire_each()
local slot, first, span = 1, nil, 0
while slot <= lock.count do
local h = holder_at(slot)
local longest = now + h.ttl + grace(h.ttl)
if h.expires < now then
remove(h)
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
local function expire()
if lock.count > 0 and (lock.earliest < now or lock.earliest > now + lock.span) then
expire_each()
end
end
-- lib/tombstone.lua
local function set_tombstones(dead)
if dead ~= lock.dead then
lock.dead = dead
changed.dead = dead ~= '' and dead
end
end
local function clear_tombstones()
local from = 1
while true do
local _, last, till = find(lock.dead, '^\n%S+ (%d+)', from)
if not till or tonumber(till) > now then
break
end
from = last + 1
end
set_tombstones(sub(lock.dead, from))
end
local function has_tombstone(token)
return find(lock.dead, '\n' .. token .. ' ', 1, true) ~= nil
end
-- lib/queue.lua
local LOOKED_AT = 64
local SEARCHED = 8
local news = {}
local function tell(client, line, token)
if client ~= '-' and not (token and token == lock.asker) then
news[client] = news[client] and news[client] .. '\n' .. line or line
end
end
local function publish()
for client, lines in pairs(news) do
local secret = match(client, '^[^.!]*%.?([^!]*)')
redis.pcall('PUBLISH', channel(client), lines .. '\n' .. redis.sha1hex(secret .. lines .. secret))
end
end
local function heed(h)
if string.byte(client_of(h), -1) == NOTICE then
tell(h.client, 'wanted ' .. h.token)
end
end
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
local function is_overdue(w)
return w.alive < now or w.alive > now + patience(w.ttl)
end
local function seems_gone(w)
return w.heard == '1' and w.token ~= lock.asker and listeners(w.client) == 0
end
local function call_cotokens(owner, place, left)
for p = place, math.min(lock.tail, place + left) do
local w = waiter_at(p)
if w and w.owner == owner then
tell(w.client, 'ask ' .. w.token, w.token)
end
end
end
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
local function inform()
local w = next_waiter()
if w and w.alive - patience(w.ttl) + w.ttl / 3 > lock.earliest then
tell(w.client, 'ask ' .. w.token, w.token)
end
end
local function is_next(place)
local w = next_waiter()
return w and w.place == place
end
local function drop_dead()
local length = lock.head and lock.tail - lock.head + 1 or 0
for i = 1, math.min(length, SEARCHED) do
local w = waiter_at(lock.head + (now_us + i) % length)
if w and (is_overdue(w) or seems_gone(w)) then
drop_waiter(w)
end
end
end
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
heed(granted[i])
end
if head and lock.used > 0 and head ~= lock.informed and now + lock.longest / 3 > lock.earliest then
inform()
end
return left == 0 and head and 1 or 0
end
-- op/renew.lua
local NEITHER, HELD = 0, 1
local function handle(at)
lock.must = true
expire()
local h = lock.mine
if h then
h.tag = ARGV[5 + at] ~= '-' and ARGV[5 + at] or h.tag
extend(h, tonumber(ARGV[4 + at]))
end
local more = grant()
if h and more == 0 and not lock.head then
return HELD
end
return { h and HELD or NEITHER, more, lock.head and 1 or 0 }
end
-- lib/each.lua
local AT_LENGTH = 8
local ENOUGH = 512
at_length = (at_length or AT_LENGTH) + 0
local function handle_one(i, at)
local record
if #KEYS == 1 then
record = records[i]
end
local refused = load(ARGV[3 + at], record)
if refused then
return refused, true
end
local reply = handle(at)
refused = save(lock.must)
return refused or reply, refused
end
local handled, told = 0, {}
for i = 1, #KEYS do
if not replies[i] and (handled < AT_LENGTH or handled < at_length and looked < ENOUGH) then
n, handled, news = i, handled + 1, {}
local done, reply, refused = pcall(handle_one, i, (i - 1) * ARGUMENTS)
if done or type(reply) == 'table' then
replies[i] = reply
elseif find(reply, '^%u+ ') then
replies[i] = { err = reply }
elseif find(reply, ': %-%u') or find(reply, ': The user executing the script ', 1, true) then
replies[i] = { err = 'ERR Error running script ' .. reply }
else
replies[i] = { err = 'WRONGTYPE ' .. KEYS[n] .. ' is no lock: ' .. (string.gsub(reply, '%c', ' ')) }
end
if done and not refused then
for client, lines in pairs(news) do
told[client] = told[client] and told[client] .. '\n' .. lines or lines
end
end
end
end
news = told
publish()
for i = 1, #KEYS do
replies[i] = replies[i] or false
end
return replies
