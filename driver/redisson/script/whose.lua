-- whose.lua: who is in the way.

-- whose returns at most 256 bytes of the holder. It is '' if the hash is no RLock, or if the user
-- may not read it, who can acquire all the same.
local function whose()
  if redis.pcall('HLEN', KEYS[1]) ~= 1 then
    return ''
  end
  return string.sub(redis.pcall('HKEYS', KEYS[1])[1] or '', 1, 256)
end

