-- op/ping.lua: say something on the channel of a client, which asks for it to learn whether it can
-- be heard: as news of locks is said, by a script, on the node that has a key. Unlike theirs its
-- failure is told.
--
-- KEYS[1]  says on which node of a Cluster; there is never anything in it
-- ARGV[1]  channel
-- ARGV[2]  what to say
--
-- Returns how many hear it, as far as this node knows.

return redis.call('PUBLISH', ARGV[1], ARGV[2])
