-- op/notice.lua: from now on tell the holder that somebody waits.
--
-- KEYS[n]  lock
-- ARGV[3]  token
--
-- Returns an error, or {status, more}: status NEITHER the token does not hold it, HELD nobody waits,
-- WANTED somebody does; more as release.lua.

local NEITHER, HELD, WANTED = 0, 1, 2

local refused = load(ARGV[3])
if refused then
  return refused
end
expire()
local h = lock.mine
local client = h and client_of(h) or '-'
if client ~= '-' and string.byte(client, -1) ~= NOTICE then
  h.client = client .. '!'
  h.granted = string.gsub(h.granted, '^(%d+ %d+ %d+ %S+)', '%1!')
  changed[h.field] = holder_record(h)
end
local more = grant() -- which also drops those who wait no more
refused = save(true)
if refused then
  return refused
end
publish()
return { h and (lock.head and WANTED or HELD) or NEITHER, more }
