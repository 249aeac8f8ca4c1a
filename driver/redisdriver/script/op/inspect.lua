-- op/inspect.lua: all there is to know. Writes nothing.
--
-- KEYS[n]  lock
--
-- Returns {now in us, thin form or nothing, {field, value, ...} of the fat form}.

local record = redis.call('MGET', KEYS[n])[1]
return { now_us, record, record and {} or redis.call('HGETALL', KEYS[n]) }
