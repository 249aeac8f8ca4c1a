-- owner_renew.lua: let the lease of a token of the owner last its whole length again.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[3]  holds, a zset: the tokens of the owner, by the end of their leases (the second
--          key is as in the other scripts, and not looked at)
-- ARGV[1]  token
-- ARGV[2]  owner, as a field
-- ARGV[3]  length of the lease in ms
--
-- Returns 1 renewed, 0 not held by this token.

if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return 0
end
prune()
if not redis.call('ZSCORE', KEYS[3], ARGV[1]) then
  return 0
end
hold()
write()
return 1
