-- op/inspect.lua: all there is to know. Writes nothing.
--
-- KEYS[n]  lock
--
-- Returns for each lock an error, or {now in us, thin form or nothing, {field, value, ...} of the fat
-- form}. Or nothing, where there is much to tell of others, to be asked for again.

local ENOUGH = 2000 -- fields and values in one call, so that no call holds up the server for long

local told = 0
for n = 1, #KEYS do
  if records[n] then
    replies[n] = { now_us, records[n], {} }
  elseif not replies[n] and told < ENOUGH then
    local fields = redis.pcall('HGETALL', KEYS[n]) -- what is refused is so for this lock alone
    replies[n], told = fields.err and fields or { now_us, false, fields }, told + #fields
  end
  replies[n] = replies[n] or false
end
return replies
