-- lock_again.lua: what a token hears that has asked before.
--
-- Begins the second part of <kind>_acquire.lua.
--
-- Returns as that does.

if buried() then
  return { 0 }
end
clear()
expire()
if held then
  extend(ttl)
  return { 3, held }
end
