-- rw_force.lua: end the leases of all who hold the lock, and tell those who wait. Needs settle.lua.
--
-- KEYS[1]  lock, a hash: "mode", and holders
-- KEYS[2]  settled, a zset: tokens that were given up
-- KEYS[3]  holds, a zset: the tokens of an owner, by the end of their leases
-- ARGV[1]  channel of the lock
-- ARGV[2]  PUBLISH or SPUBLISH
-- ARGV[3]  how long it will be known that the tokens were given up, in ms
--
-- Returns 1 released, 0 not held by anybody.

if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode ~= 'read' and mode ~= 'write' then
  return redis.error_reply('WRONGTYPE the hash is no RReadWriteLock')
end
local tokens = redis.call('ZRANGE', KEYS[3], 0, -1)
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  table.insert(tokens, (string.gsub(field, ':write$', '')))
end
-- An ask of theirs that is on its way must not take the lock back.
settle(tokens, ARGV[3])
redis.call('DEL', KEYS[1], KEYS[3])
redis.pcall(ARGV[2], ARGV[1], '1')
return 1
