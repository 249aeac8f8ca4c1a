-- lock_inspect.lua: all there is to know. Writes nothing.
--
-- KEYS[1]  lock
--
-- Returns {now in us, {field, value, ...}}.

local clock = redis.call('TIME')
return { clock[1] * 1000000 + clock[2], redis.call('HGETALL', KEYS[1]) }
