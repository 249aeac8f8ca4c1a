-- lib/begin.lua: what begins every script.
--
-- A script handles one lock after the other, KEYS[n]; all times are ms of the server's clock. The Go
-- side replaces n by 1 where a script is for one lock, since some proxies want to see literally
-- which key a command is for.
--
-- A lock that one holds and nobody waits for is a string, "thin", see record.lua. As soon as there is more to
-- remember it is a hash, "fat", see lock.lua.
--
-- Most calls end in short/, which is one straight line: to define a function costs as much as to
-- run a small one, the more so the more it uses of what is around it. These use nothing.
-- x + 0 is tonumber(x) at half the cost.
--
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[2]  retention: how long, in ms, the key outlives its last use

local n = 1
local unpack = table.unpack or unpack -- Lua 5.4 or 5.1
local find, match, sub, format = string.find, string.match, string.sub, string.format -- each use is cheaper
local retention = ARGV[2] + 0
