-- lib/burial.lua: leave a tombstone.
--
-- Scripts need it that end what a token has, or may come to have.

-- The tombstone lasts as long as the key. A storm of cancellations must stay cheap, and every
-- script reads them all; so there is room for about 150. Without its tombstone a straggler may
-- be granted the lock, and its client gives it back when it hears of that, or it costs the
-- others a TTL.
local function bury(token)
  clear_tombstones()
  local dead = lock.dead
  local first, last = find(dead, '\n' .. token .. ' ', 1, true)
  if first then
    local next = find(dead, '\n', last, true)
    dead = sub(dead, 1, first - 1) .. (next and sub(dead, next) or '')
  end
  dead = dead .. '\n' .. token .. ' ' .. int(now + retention)
  while #dead > 8192 do
    dead = string.gsub(dead, '^\n*[^\n]*', '') -- something, even if it is no tombstone
  end
  set_tombstones(dead)
  keep(0) -- see save
end
