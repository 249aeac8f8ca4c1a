-- guard.lua: run a command, if no fence is older than the last one seen of its lock.
--
-- KEYS[1..n]    fence keys, strings: the largest fence of an exclusive holder that was seen
-- KEYS[n+1..]   keys of the command, so that a Cluster sees whether they are in one slot
-- ARGV[1]       n
-- ARGV[2..]     for each fence its number, and 1 if others may hold the lock, too, else 0
-- ARGV[2n+2..]  the command; none for a check alone
--
-- Returns what the command returns, or an error STALEFENCE <i> <seen>.
local n = tonumber(ARGV[1])
for i = 1, n do
  local seen = redis.call('GET', KEYS[i])
  if seen and tonumber(ARGV[2 * i]) < tonumber(seen) then
    return redis.error_reply('STALEFENCE ' .. i .. ' ' .. seen)
  end
end
for i = 1, n do
  if ARGV[2 * i + 1] == '0' then
    redis.call('SET', KEYS[i], ARGV[2 * i], 'EX', 604800)
  end
end
if ARGV[2 * n + 2] then
  return redis.pcall(unpack(ARGV, 2 * n + 2))
end
return redis.status_reply('OK')
