-- rw_inspect.lua: who holds the lock, how often, and for how long. Needs
-- rw_readers.lua and holds.lua.
--
-- KEYS[1]  lock, a hash: "mode", and holders
-- KEYS[2]  holds, a zset: the tokens of an owner, by the end of their leases
-- ARGV[1]  what the keys of readers begin with
--
-- Returns {mode, left, holder, ...}: "read", "write", or "write " and the owner; and for each
-- holder the rest of its lease in ms, -1 if it has no end, and at most 256 bytes of its name, with
-- how often it holds if that is more than once. If nobody holds the lock, {}.

local mode = redis.call('HGET', KEYS[1], 'mode')
if mode ~= 'read' and mode ~= 'write' then
  return {} -- it may be an RLock
end
local reply, fields = { mode }, redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local holder, times, left = fields[i], fields[i + 1], 0
  local writer = string.match(holder, '^(.*):write$')
  if writer then
    left = redis.call('PTTL', KEYS[1])
  elseif holder ~= 'mode' and mode == 'read' then
    left = readable(holder, times, ARGV[1])
  end
  if writer and string.sub(writer, 1, 6) == 'owner ' then
    reply[1] = 'write ' .. string.sub(writer, 7)
    each(function(token, rest)
      table.insert(reply, rest)
      table.insert(reply, token)
    end)
  elseif left ~= 0 then
    table.insert(reply, left)
    table.insert(reply, string.sub(writer or holder, 1, 256) .. (times ~= '1' and ', ' .. times .. ' times' or ''))
  end
end
return #reply > 1 and reply or {}
