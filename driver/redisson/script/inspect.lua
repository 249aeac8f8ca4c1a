-- inspect.lua: who holds the lock, how often, and for how long. Needs held.lua.
--
-- KEYS[1]  lock, a hash: its one field is the holder, with how often it holds
-- KEYS[2]  holds, a zset: the tokens of an owner, by the end of their leases
-- KEYS[3]  only with fences: counter, a string: the number of the last grant
--
-- Returns {owner, left, holder, ...}, see held.lua.

return held(KEYS[3])
