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
