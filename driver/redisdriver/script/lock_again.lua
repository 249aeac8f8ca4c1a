-- lock_again.lua: what a token hears that has asked before.
--
-- Begins the second part of <kind>_acquire.lua.
--
-- Returns as that does.

-- To be told that one holds the lock. A token whose owner has it comes in beside the others
-- of that owner, and does not wait behind those who wait for them.
local function join()
  if self ~= token then
    part = part or { expires = 0, ttl = ttl, since = now, client = client, owner = string.sub(self, 2), text = holder }
    if mine then
      waiter_drop(mine, token)
    end
  end
  extend(ttl)
end

-- The tokens of an owner have one number, which is that of all of them.
local function granted(more)
  return { 3, held, more, self == token and numbers or 1 }
end

if buried() then
  return { 0 }
end
clear()
expire()
if held then
  join()
  local more, news = grant()
  spread(news, token)
  return granted(more)
end
