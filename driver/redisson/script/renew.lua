-- renew.lua: let the lease last its whole length again.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- ARGV[1]  token
-- ARGV[2]  length of the lease in ms
--
-- Returns 1 renewed, 0 not held by this token.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
-- It only lengthens: an older renewal may arrive after a newer one that asked for more. But
-- it always writes, because WAIT promises something of what was written only.
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
return 1
