-- rw_whose.lua: who is in the way.

-- whose returns at most 256 bytes of a holder. It is '' if the user may not read it, who can
-- acquire all the same.
local function whose()
  local two = redis.pcall('HRANDFIELD', KEYS[1], 2) -- one of them is the field "mode"
  local holder = two[1] == 'mode' and two[2] or two[1] or ''
  return string.sub(string.gsub(holder, ':write$', ''), 1, 256)
end
