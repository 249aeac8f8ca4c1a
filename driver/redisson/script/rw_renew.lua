-- rw_renew.lua: let the lease of a token last its whole length again. Needs owner.lua.
--
-- KEYS[1]  lock, a hash: "mode", and holders
-- KEYS[3]  holds, a zset: the tokens of an owner, by the end of their leases (the second
--          key is as in the other scripts, and not looked at)
-- KEYS[4]  timeout, a string: lives as long as this token may read
-- ARGV[1]  token
-- ARGV[2]  owner, as a field, or '' for none
-- ARGV[3]  length of the lease in ms
--
-- Returns 1 renewed, 0 not held by this token.

local reads = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
if not reads and ARGV[2] ~= '' then
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
end
if reads and redis.call('EXISTS', KEYS[4]) == 0 or
  not reads and redis.call('HEXISTS', KEYS[1], ARGV[1] .. ':write') == 0 then
  return 0
end
-- It only lengthens: an older renewal may arrive after a newer one that asked for more. But
-- it always writes, because WAIT promises something of what was written only.
if reads then
  redis.call('PEXPIRE', KEYS[4], math.max(redis.call('PTTL', KEYS[4]), tonumber(ARGV[3])))
end
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[3])))
return 1
