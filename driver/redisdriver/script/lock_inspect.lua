-- lock_inspect.lua: all there is to know. Writes nothing.
--
-- KEYS[1]  lock
--
-- Returns {now in us, {field, value, ...}}.

return { now_us, redis.call('HGETALL', KEYS[1]) }
