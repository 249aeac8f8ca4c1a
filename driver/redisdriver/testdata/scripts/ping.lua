-- op/ping.lua
return redis.call('PUBLISH', ARGV[1], ARGV[2])
