-- lock_attach.lua: make a token the holder of what another one holds, in its place.
--
-- It is as if that one had released it, and this one been granted it with nobody in
-- between; so the fence is new, but beside others of an owner it is theirs.
--
-- KEYS[1]  lock
-- ARGV[4]  the token that holds it
-- ARGV[5]  TTL in ms
-- ARGV[6]  how many fences may be of use
-- ARGV[7]  client to tell of a loss, - for none
-- ARGV[8]  text about the holder
--
-- Returns {3, fence, more, n, weight, owner}, n how many fences there are, owner empty for none; or {0, 0, more} if that
-- token does not hold it, or this one was released before. more as in grant in queue.lua.

local old, ttl, fences, client, holder = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8]

local function answer()
  local more, news = grant()
  spread(news, token)
  if not held then
    return { 0, 0, more }
  end
  local alone = self == token
  return { 3, held, more, alone and numbers or 1, weight_of(self), alone and '' or string.sub(self, 2) }
end

if buried() then
  return { 0, 0, 0 }
end
clear()
expire()
if held then -- a repeat
  extend(ttl)
  return answer()
end
local its_part = part_read(redis.call('HGET', KEYS[1], 'o:' .. old))
local its_self = its_part and ' ' .. its_part.owner or old
local weight = weight_of(its_self)
if not weight then
  return answer() -- perhaps it has just expired
end
local before = ends
redis.call('HDEL', KEYS[1], 'o:' .. old)
self = its_part and its_self or token
if its_part and has_kin(old) then
  its_part.expires, its_part.ttl, its_part.since = now, ttl, now
  its_part.client, its_part.text = client, holder
  part_write(token, its_part)
  expire()
  extend(ttl)
else
  vacate(its_self)
  local alone = used == 0
  settle(give(token, self, weight, ttl, fences, client, holder), alone)
end
if ends < before then
  informed = nil
end
-- An ask of the old one may be on its way.
bury(old)
return answer()
