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
-- short/acquire.lua
do
local request, ttl, fences, room, weight, limit, owner, whom
local lasts, weighs, most, length
local held, granted, waits, last
for n = 1, #KEYS do
repeat
local at = (n - 1) * ARGUMENTS
local token, asked, record = ARGV[3 + at], ARGV[4 + at], records[n]
if request ~= ARGV[5 + at] then
request, held, waits = ARGV[5 + at], nil, nil
ttl, fences, room, weight, limit, owner, whom = match(request, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
lasts, weighs, most = ttl + 0, weight + 0, limit + 0
length = lasts + grace(lasts)
end
if weighs > most or replies[n] or passed[KEYS[n]] then
break
end
local high
if record then
high = #record <= 16 and not find(record, '%D') and tonumber(record)
if not high then
break
end
elseif sub(asked, -2) == ' 0' and redis.call('EXISTS', KEYS[n]) == 0 then
if int(now_us) + 0 ~= now_us then
return { err = 'ERR this is a Redis server of 32 bits, which cannot keep locks' }
end
record, high = '0', now_us - 1
end
local size, life, holder, shares, stands, head, tail, waiting, longest, birth, dead, owned, resized
local count, used, earliest, span, tag, whose
if not record then
high, size, life, holder, shares, stands, head, tail, waiting, longest, birth, dead, owned, resized =
unpack(redis.pcall('HMGET', KEYS[n], 'high', 'limit', 'life', 'h:1', 'shares', 't:' .. token, 'head', 'tail', 'waiting',
'longest', 'birth', 'dead', 'owner', 'resized'))
high, life = tonumber(high), tonumber(life)
if not high or not life or size ~= limit or owned or resized then
break
end
if shares then
count, used, earliest, span = match(shares, SHARES)
else
count, earliest, span, used, tag, whose = match(holder or '', HOLDER)
end
if not count or count == token then
break
end
used, earliest, span = used + 0, earliest + 0, span + 0
if not shares then
count, span = 1, span + grace(span)
end
if earliest < now or earliest > now + span then
break
end
if dead then
local till = match(dead, '^\n%S+ (%d+)')
if life < now + retention or not till or till + 0 <= now or find(dead, '\n' .. token .. ' ', 1, true) then
break
end
end
end
if high >= now_us then
break
end
if record or not head and used + weighs <= most then
if owner ~= '-' then
break
end
local ends = now + length
if not held then
held, last = ' ' .. int(ends) .. ' ' .. ttl .. ' ' .. weight .. ' - ', int(now_us)
granted = ' ' .. int(now) .. ' ' .. whom
end
local first, reply = now_us + 1 - fences, nil
local numbers
if first > high then
numbers = int(first) .. ' ' .. fences
else
numbers = format('%d %d', high + 1, now_us - high)
end
if record then
reply = redis.pcall('SET', KEYS[n], last .. ' ' .. limit .. ' ' .. token .. held .. numbers .. granted,
'PXAT', int(now + retention + length))
replies[n], left = reply.err and reply or numbers, left - 1
passed[KEYS[n]] = true
break
end
if stands or life < ends + retention / 2 then
break
end
if ends < earliest then
earliest, span = ends, length
end
shares = format('%d %d %d %d', count + 1, used + weighs, earliest, span)
count = match(shares, '^%d+')
reply = redis.pcall('HSET', KEYS[n], 'h:' .. count, token .. held .. numbers .. granted, 't:' .. token, 'h' .. count,
'high', last, 'shares', shares)
if type(reply) == 'number' then
replies[n], left = numbers, left - 1
end
break
end
local patient, place, first, reply = now + patience(lasts), nil, nil, nil
if room == '0' or used ~= most or earliest < now + lasts / 3 or lasts > (tonumber(longest) or 0)
or life < patient + retention / 2 or not tonumber(birth) then
break
end
if shares then
tag, whose = match(holder or '', '^%S+ %d+ %d+ %d+ (%S+) (.*)$')
end
local ask = '1'
if stands then
place, ask = head and match(stands, '^w(%d+)$'), match(asked, '^%d+')
local who, before = match(place and redis.call('HGET', KEYS[n], 'w:' .. place) or '', '^(%S+) (%d+) ')
if who ~= token or before + 0 > ask + 0 then
break
end
first = head == place
else
tail, waiting = tonumber(tail), tonumber(waiting or 0)
if asked ~= '1 0 0' or not tail or not waiting or waiting >= room + 0 then
break
end
place, waiting, first = int(tail + 1), int(waiting + 1), not head
end
if not whose or first and (shares or find(whose, '^%d+ %d+ %d+ %S*!')) then
break
end
if not waits then
local client, text = match(whom, '^(%S+)(.*)$')
local heard = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1] .. match(client, '^[^.!]*'))[2]
waits = ' ' .. weight .. ' ' .. ttl .. ' ' .. fences .. ' ' .. int(patient) .. ((tonumber(heard) or 0) > 0 and ' 1 ' or ' 0 ')
.. client .. ' ' .. owner .. text
end
local waiter = token .. ' ' .. ask .. waits
if stands then
reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, waiter)
else
reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, waiter, 't:' .. token, 'w' .. place, 'tail', place, 'waiting', waiting,
'head', head or place)
end
if type(reply) == 'number' then
replies[n], left = 'waits ' .. (first and int(earliest - now + 1) or '0') .. ' ' .. birth .. ' ' .. place .. ' ' .. tag .. ' '
.. int(now) .. ' ' .. whose, left - 1
end
until true
if not replies[n] then
passed[KEYS[n]] = true
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
-- op/acquire.lua
local BURIED, BUSY, QUEUED, GRANTED, EXCEEDED, CONFLICT, FULL = 0, 1, 2, 3, 4, 5, 6
local function granted(more)
local fence, numbers = fences_of(lock.mine)
return more > 0 and { GRANTED, fence, more, numbers } or int(fence) .. ' ' .. int(numbers)
end
local function whose(w)
local h = w.weight > lock.limit - lock.used and lock.holders[1]
return h and lock.told .. ' ' .. int(now) .. ' ' .. h.granted or lock.told
end
local function join(w)
if w.owner == '-' or w.owner ~= lock.owner then
return false
end
if lock.place then
drop_waiter(waiter_at(lock.place))
end
lock.mine = hold(w)
if lock.head then
notify()
end
return true
end
local function agree(limit)
if lock.used == 0 and not lock.head and not lock.resized and lock.limit ~= limit then
set('limit', limit)
end
return lock.resized or lock.limit == limit
end
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
lock.must = lock.mine or lock.place
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
local more = grant()
if not agree(w.limit) then
return { CONFLICT, lock.limit, more }
end
end
if w.weight > lock.limit then
if lock.place then
drop_waiter(waiter_at(lock.place))
end
return { EXCEEDED, lock.limit, grant() }
end
local more, mine, full = 0, nil, false
if w.wait and lock.waiting >= w.room and not lock.place then
drop_dead()
grant()
full = lock.waiting >= w.room
end
if w.wait and not full and (lock.head or w.weight > lock.limit - lock.used) then
enqueue(w, birth + 0, place + 0)
mine = lock.place
if lock.used < lock.limit or ask ~= '1' and now + w.ttl / 3 > lock.earliest then
more = grant()
end
else
more = grant()
if not lock.mine and not lock.head and w.weight <= lock.limit - lock.used then
lock.mine = hold(w)
end
end
if not lock.mine and join(w) then
more = grant()
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
local looks = lock.used > 0 and (first or now + w.ttl / 3 > lock.earliest and is_next(mine))
local ms = looks and lock.earliest - now + 1 or 0
if more == 0 then
return 'waits ' .. int(ms) .. ' ' .. int(lock.birth) .. ' ' .. int(mine) .. ' ' .. whose(w)
end
return { QUEUED, ms, more, lock.birth, mine, whose(w) }
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
