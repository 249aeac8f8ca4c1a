-- lib/record.lua: what is written of holders and waiters.
--
-- The files in short/ take records apart and put them together by themselves, as that is most of
-- what they do; a test holds what they write against what this writes.
--
-- ARGV[1]  wake channels are called this followed by the client's id

-- The record of a holder: "token expires ttl weight tag fence numbers since client text".
-- tag is what it says of itself to waiters, - for nothing. It has so many numbers from fence on,
-- and has held the lock since then. client is where to reach it, - for nowhere; if
-- that ends in !, it wants to hear that somebody waits. Few calls look at what comes after the
-- tag, so it is left in one piece: what was granted.
local function holder_read(record) -- nothing if it is none
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

local NOTICE = 33 -- !

local function client_of(h)
  h.client = h.client or match(h.granted, '^%d+ %d+ %d+ (%S+)') or '-'
  return h.client
end

-- The thin form: the last fence that was given, and if one token holds the lock, how much there is
-- to hold and the record of the holder. This is all that most locks ever are: read once, written
-- once. Nothing if it is not of that form.
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

-- The record of a waiter: "token ask weight ttl fences alive heard client owner text". It waits until
-- alive, see patience. heard is 1 if this node saw somebody listen on the client's channel at the
-- last ask, else 0. If 1, and nobody listens there now, the client is gone; 0 says nothing, as on
-- another node of a Cluster.
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

-- A client is written as "id.secret", with ! at the end if it wants to hear that somebody waits.
-- The id names its channel; for the secret see publish in queue.lua.
local function channel(client)
  return ARGV[1] .. match(client, '^[^.!]*')
end

local listening = {} -- the number of subscribers on a client's channel, as this node sees it

local function listeners(client)
  if listening[client] == nil then
    local reply = redis.pcall('PUBSUB', 'NUMSUB', channel(client))
    listening[client] = not reply.err and reply[2] and reply[2] + 0 or false
  end
  return listening[client]
end
