-- acquire.lua: take the lock if it is free or past, or if this token has it.
--
-- KEYS[1]  lock, a string: when the lease ends, in ms since 1970
-- KEYS[2]  owner, a string: what one of us wrote into the lock, and its token
-- KEYS[3]  there if the token was given up
-- ARGV[1]  token
-- ARGV[2]  length of the lease in ms
-- ARGV[3]  how long the keys outlive the lease, in ms
--
-- Returns {status, left}. status 0 the token was given up before, 1 it holds the lock,
-- 2 another does; left is the rest of its lease in ms, at most a day. Who it is follows, as in
-- inspect.lua.

if redis.call('EXISTS', KEYS[3]) == 1 then
  return { 0, 0 }
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local value = redis.call('GET', KEYS[1])
if value and not string.find(value, '^%d+$') then
  return redis.error_reply('WRONGTYPE the lock has a value that is no time in ms')
end
local past = not value or tonumber(value) < now
local ends = now + ARGV[2] + 1
if not past then
  local ours = redis.call('GET', KEYS[2]) or ''
  if ours ~= value .. ' ' .. ARGV[1] then
    local holder = string.sub(value, 1, 256)
    if string.sub(ours, 1, #value + 1) == value .. ' ' then
      holder = string.sub(ours, #value + 2)
    end
    return { 2, math.min(tonumber(value) - now, 86400000), holder }
  end
  -- A repeat rests on its own ask, so it has to last from now on. It never shortens what
  -- a renewal has made longer: it may be late.
  ends = math.max(ends, tonumber(value))
end
local text, life = string.format('%.0f', ends), string.format('%.0f', ends - now + ARGV[3])
redis.call('SET', KEYS[1], text, 'PX', life)
redis.call('SET', KEYS[2], text .. ' ' .. ARGV[1], 'PX', life)
return { 1, 0 }
