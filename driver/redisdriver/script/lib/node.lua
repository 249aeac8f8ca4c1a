-- lib/node.lua: what a call for many locks of one node of a Cluster begins with, instead of locks.lua.
--
-- The keys of a call must be in one slot, and these are not. So they are arguments: a script may use
-- any key of its node. It is refused every other, at the first touch and even to read it: a key
-- whose slot is another node's, or is on its way, and the key is there already or nowhere. While a
-- script runs nothing moves. So each lock is read before any is written. What cannot be read is
-- left alone for a call of its own, with a key, which the nodes send where it belongs.
--
-- The wrong version declares the first key. If that has moved ahead of its slot, the call is sent
-- after it, with ASKING. There it may use all keys of all slots that arrive. It takes a lock that
-- is still held at the node that has not sent it yet.
--
-- KEYS[n]  lock, from here on
-- ARGV[3]  of each lock these in turn: what it is in locks.lua, and the key; then perhaps how many of them
--          each.lua handles; at the end, how many locks

local ARGUMENTS = math.floor((#ARGV - 3) / ARGV[#ARGV]) -- of each lock
local KEYS, records, replies, left = {}, {}, {}, ARGV[#ARGV] + 0
for n = 1, left do
  KEYS[n] = ARGV[2 + n * ARGUMENTS]
end
local passed = {} -- as in locks.lua
local at_length = #ARGV > 3 + #KEYS * ARGUMENTS and ARGV[#ARGV - 1]
for n = 1, #KEYS do
  local reply = redis.pcall('MGET', KEYS[n]) -- GET refuses a fat one
  if not reply.err then
    records[n] = reply[1]
  elseif find(reply.err, 'cluster is down', 1, true) then
    return { err = 'CLUSTERDOWN ' .. reply.err } -- so that they do not all ask again
  else
    replies[n], left = 'elsewhere', left - 1
  end
end
