-- holds.lua: the tokens of an owner. Needs clock.lua.

-- each calls f with every token that holds, and the rest of its lease in ms.
local function each(f)
  local holds = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
  for i = 1, #holds, 2 do
    if tonumber(holds[i + 1]) > now then
      f(holds[i], tonumber(holds[i + 1]) - now)
    end
  end
end
