-- queue.lua: those who wait for a lock.
--
-- Comes before the second part of every script. Its fields of the hash:
--
--   head       first place that may have a waiter; absent when nobody waits
--   tail       last place given out; never goes back while the key lives
--   birth      tells this numbering from that of an earlier life of the key
--   skip       where the next grant starts to look: whoever waits before it was
--              passed over; absent when nobody was
--   w:<place>  a waiter: "token ask weight ttl fences alive vote client owner holder"
--   s:<token>  its place
--   dead       tombstones, "\ntoken until" each
--   carrier    "token text": what a holder, or one of them, says of itself to waiters
--   notice     "token client": a holder that wants to hear when somebody waits
--
-- vote says what it means if nobody listens on the client's channel: 1 nothing (this
-- node never saw anybody listen there), 2 that the client is gone, 3 nothing, and
-- never again (it was passed over once, and turned out to be alive). owner is - for none,
-- else it comes after a =.
--
-- KEYS[1]  lock
-- ARGV[2]  wake channels are called this followed by the client's id

local tail, birth, skip, mine
local speaker, carrier
local informed -- the place of the waiter that knows when the next lease ends

local function waiter_read(place)
  local record = redis.call('HGET', KEYS[1], 'w:' .. int(place))
  if not record then
    return nil
  end
  local w, owner = {}, nil
  w.token, w.ask, w.weight, w.ttl, w.fences, w.alive, w.vote, w.client, owner, w.holder =
    string.match(record, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) (%S+) (%S+) (.*)$')
  w.self = owner == '-' and w.token or ' ' .. string.sub(owner, 2)
  w.weight, w.ttl, w.fences, w.alive = tonumber(w.weight), tonumber(w.ttl), tonumber(w.fences), tonumber(w.alive)
  return w
end

-- Read the rest: the line of waiters, this token's place in it, its part in what its owner
-- holds, and up to two fields of the kind of lock.
local function look(...)
  local v = redis.call('HMGET', KEYS[1], 'tail', 'birth', 'skip', 's:' .. token, 'carrier', 'o:' .. token, ...)
  tail, birth = tonumber(v[1] or 0), tonumber(v[2] or 0)
  skip, mine = v[3] and tonumber(v[3]), v[4] and tonumber(v[4])
  informed = skip or head
  if mine then
    -- A failover that lost writes can have given one place to two.
    local w = waiter_read(mine)
    if not w or w.token ~= token then
      redis.call('HDEL', KEYS[1], 's:' .. token)
      mine = nil
    end
  end
  if v[5] then
    speaker, carrier = string.match(v[5], '^(%S+) (%S+)$')
  end
  part = part_read(v[6])
  if part then
    self = ' ' .. part.owner
  end
  return v[7], v[8]
end

-- A token that was released while one of its asks was still under way. That ask
-- must not take the lock when it arrives: nobody would ever release it.
local function buried()
  return string.find(dead, '\n' .. token .. ' ', 1, true) ~= nil
end

-- Throw away old tombstones. The oldest are the first.
local function clear()
  local from = 1
  while true do
    local _, last, till = string.find(dead, '^\n%S+ (%d+)', from)
    if not till or tonumber(till) > now then
      break
    end
    from = last + 1
  end
  if from > 1 then
    dead = string.sub(dead, from)
    if dead == '' then
      redis.call('HDEL', KEYS[1], 'dead')
    end
  end
end

-- The tombstone lasts as long as the key. A storm of cancellations must stay cheap, and
-- every script reads them all; so there is room for about 150. Without its tombstone a
-- straggler may be granted the lock, and its client gives it back when it hears of that,
-- or it costs the others a TTL.
local function bury(who)
  clear()
  local first, last = string.find(dead, '\n' .. who .. ' ', 1, true)
  if first then
    local next = string.find(dead, '\n', last, true)
    dead = string.sub(dead, 1, first - 1) .. (next and string.sub(dead, next) or '')
  end
  dead = dead .. '\n' .. who .. ' ' .. int(now + retention)
  while #dead > 8192 do
    dead = string.gsub(dead, '^\n[^\n]+', '')
  end
  redis.call('HSET', KEYS[1], 'dead', dead)
  keep(retention)
end

-- Bury those whose lock is taken from them: a heartbeat that is on its way must not take it
-- back. There is no room for many more tombstones.
local function condemn(victims)
  for i = 1, math.min(#victims, 128) do
    bury(victims[i].token)
  end
end

-- The number of subscribers on a client's channel as this node sees it, or nil.
local function listeners(client)
  local reply = redis.pcall('PUBSUB', 'NUMSUB', ARGV[2] .. client)
  return not reply.err and tonumber(reply[2]) or nil
end

-- PUBLISH can be refused by an ACL; that must not undo half of a grant. So it is
-- the last thing a script does, and its result is of no interest: a waiter that
-- hears nothing learns of its grant from its next heartbeat.
local function tell(client, message)
  if client ~= '-' then
    redis.pcall('PUBLISH', ARGV[2] .. client, message)
  end
end

-- A client whose name ends in ! wants to hear when somebody waits for what it holds.
local function notify()
  local notice = redis.call('HGET', KEYS[1], 'notice')
  if notice then
    local who, client = string.match(notice, '^(%S+) (%S+)$')
    tell(client, 'wanted ' .. who)
  end
end

-- A waiter must ask again within this time or lose its place. A grant may be
-- pushed until then, and still leaves it a third of its TTL to act on.
local function patience(ttl)
  return math.floor(ttl * 2 / 3)
end

local function waiter_write(place, ask, weight, ttl, fences, alive, vote, client, holder)
  redis.call('HSET', KEYS[1], 'w:' .. int(place), table.concat({ token, int(ask), int(weight),
    int(ttl), int(fences), int(alive), vote, client, self == token and '-' or '=' .. string.sub(self, 2), holder }, ' '))
end

local function waiter_drop(place, who)
  redis.call('HDEL', KEYS[1], 'w:' .. int(place), 's:' .. who)
end

-- head and skip are numbers or false; write what changed.
local function mark(field, was, is)
  if is and is ~= was then
    redis.call('HSET', KEYS[1], field, int(is))
  elseif was and not is then
    redis.call('HDEL', KEYS[1], field)
  end
  return is
end

-- Join the queue, or say again that one is waiting. A waiter whose record was
-- dropped while it was cut off comes back to its old place, if the key is still the
-- one that gave the place out.
local function waiter_ask(ask, weight, ttl, fences, client, holder, old_birth, old_place)
  keep(patience(ttl) + retention)
  local alive, vote = now + patience(ttl), (listeners(client) or 0) > 0 and '2' or '1'
  if mine then
    local w = waiter_read(mine)
    if tonumber(w.ask) > ask then
      return
    end
    if skip and mine < skip then
      vote = '3'
      skip = mark('skip', skip, false)
    elseif w.vote == '3' then
      vote = '3'
    end
    waiter_write(mine, ask, weight, ttl, fences, alive, vote, client, holder)
    return
  end
  if old_place > 0 and old_birth == birth and old_place <= tail
    and not redis.call('HGET', KEYS[1], 'w:' .. int(old_place)) then
    mine = old_place
    if skip and mine < skip then
      skip = mark('skip', skip, false)
    end
  else
    if birth == 0 then
      birth = now_us
      redis.call('HSET', KEYS[1], 'birth', int(birth))
    end
    tail = tail + 1
    mine = tail
    redis.call('HSET', KEYS[1], 'tail', int(tail))
  end
  waiter_write(mine, ask, weight, ttl, fences, alive, vote, client, holder)
  redis.call('HSET', KEYS[1], 's:' .. token, int(mine))
  if not head or mine < head then
    head = mark('head', head, mine)
  end
end

-- Let the key live for the lease that was just given. If nobody else counts on the key, one
-- that did before keeps it no longer.
local function settle(life, alone)
  if alone and not head then
    redis.call('PEXPIRE', KEYS[1], int(life))
  else
    keep(life)
  end
end

-- Make a token a holder, or its owner on its behalf. Returns how long the key must live.
local function give(who, its_self, weight, ttl, fences, client, holder)
  if its_self ~= who then
    part_write(who, { expires = now + ttl + grace(ttl), ttl = ttl, since = now, client = client,
      owner = string.sub(its_self, 2), text = holder })
  end
  return hold(its_self, weight, ttl, fences, client, holder)
end

-- The tokens of the owner that has just got the lock need not wait for each other. They
-- come in when they ask, so they are told to.
local function call_kin(owner, place, left, news)
  for p = place, math.min(tail, place + left) do
    local w = waiter_read(p)
    if w and w.self == owner then
      news[#news + 1] = { w.client, 'ask ' .. w.token, w.token }
    end
  end
end

-- Whether nobody listens for a waiter whose client was known to listen. seen has the
-- answers of one run of the script.
local function seems_gone(w, seen)
  if w.vote == '2' and seen[w.client] == nil then
    seen[w.client] = w.token ~= token and listeners(w.client) == 0
  end
  return w.vote == '2' and seen[w.client]
end

-- Nobody is told when a lease runs out. The waiter that is next looks again at that time,
-- which the answer to its ask has named. A waiter that became next after its ask is told to
-- ask once more, unless its next heartbeat comes before that time. If its client seems to
-- have gone, so is the waiter behind it.
--
-- A script that has a lease end earlier than others were told forgets who is informed.
local function inform(seen, news)
  local place, left = skip or head, 256
  if used == 0 or place == informed then
    return
  end
  while place and place <= tail and left > 0 do
    local w = waiter_read(place)
    left = left - 1
    if w and w.alive - patience(w.ttl) + w.ttl / 3 <= ends then
      return
    elseif w then
      news[#news + 1] = { w.client, 'ask ' .. w.token, w.token }
      if not seems_gone(w, seen) then
        return
      end
    end
    place = place + 1
  end
end

-- Whether a waiter is next if those before it, at most a few, are passed over.
local function is_next(place)
  local first, seen = skip or head, {}
  if place - first > 8 then
    return false
  end
  for p = first, place - 1 do
    local w = waiter_read(p)
    if w and not seems_gone(w, seen) then
      return false
    end
  end
  return true
end

-- Let in those who wait, from the head of the queue on, until the lock is full or the
-- next one needs more than is left: nobody overtakes, so that who needs much is not
-- starved by those who need little. This is the push: a waiter is made a holder here
-- and now, and only told of it.
--
-- Waiters whose heartbeat is overdue are dropped. Those whose client seems to have gone
-- are passed over, but keep their place until they are overdue too: a count of
-- subscribers may be wrong, a missing heartbeat is not.
--
-- At most 256 places are looked at, so that no call holds up the server for long.
-- Returns 1 if there may be more to do, and whom to tell what, in addition to news.
--
-- Every script that may have changed the head, how much is held, or the limit, ends with
-- this, and answers with the first result: whoever runs it has to run <kind>_release.lua then,
-- with any token, until there is no more.
local function grant(news)
  local place, passed, gone, left, life, alone = head, false, {}, 256, 0, used == 0
  news = news or {}
  while place and place <= tail and left > 0 do
    local w = waiter_read(place)
    left = left - 1
    if w and (w.alive < now or w.alive > now + patience(w.ttl)) then
      -- Overdue; or written before the clock was set back, which nobody can tell from
      -- overdue. Who is alive comes back to its place.
      waiter_drop(place, w.token)
    elseif w and skip and place < skip then
      passed, place = place, skip - 1
    elseif w and used >= limit and w.weight <= limit then
      break
    elseif w then
      if seems_gone(w, gone) then
        passed = passed or place
      elseif w.weight > limit then
        -- The limit was lowered. It would wait in vain, and the others behind it.
        waiter_drop(place, w.token)
        news[#news + 1] = { w.client, 'ask ' .. w.token }
      elseif w.weight > limit - used then
        break
      else
        waiter_drop(place, w.token)
        life = math.max(life, give(w.token, w.self, w.weight, w.ttl, w.fences, w.client, w.holder))
        news[#news + 1] = { w.client, 'granted ' .. w.token .. ' ' .. w.ask .. ' ' .. int(fence)
          .. ' ' .. (w.self == w.token and int(reserved) or '1') .. (carrier and ' ' .. carrier or ''), w.token }
        if used >= limit then
          place = place + 1
          if w.self ~= w.token then
            call_kin(w.self, place, left, news)
          end
          break
        end
      end
    end
    place = place + 1
  end
  local more = left == 0 and place and place <= tail
  head = mark('head', head, passed or place and place <= tail and place)
  skip = mark('skip', skip, passed and place)
  if life > 0 then
    settle(life, alone)
  end
  if life > 0 and head and heeds then
    news[#news + 1] = heeds -- who waits did so before, and has said it to another
  end
  inform(gone, news)
  return more and 1 or 0, news
end

-- One message for each client, with a line for each of its waiters; but nothing for a
-- token that hears it from the answer.
local function spread(news, answered)
  local clients, lines = {}, {}
  for i = 1, #news do
    local client, line, who = news[i][1], news[i][2], news[i][3]
    if not answered or who ~= answered then
      if not lines[client] then
        lines[client] = {}
        clients[#clients + 1] = client
      end
      lines[client][#lines[client] + 1] = line
    end
  end
  for i = 1, #clients do
    tell(clients[i], table.concat(lines[clients[i]], '\n'))
  end
end
