-- lib/tombstone.lua: tokens that were released while one of their asks was still under way.
--
-- That ask must not take the lock when it arrives: nobody would ever release it.

local function set_tombstones(dead)
  if dead ~= lock.dead then
    lock.dead = dead
    changed.dead = dead ~= '' and dead
  end
end

-- Throw away old tombstones. The oldest are the first.
local function clear_tombstones()
  local from = 1
  while true do
    local _, last, till = string.find(lock.dead, '^\n%S+ (%d+)', from)
    if not till or tonumber(till) > now then
      break
    end
    from = last + 1
  end
  set_tombstones(string.sub(lock.dead, from))
end

-- The tombstone lasts as long as the key. A storm of cancellations must stay cheap, and every
-- script reads them all; so there is room for about 150. Without its tombstone a straggler may
-- be granted the lock, and its client gives it back when it hears of that, or it costs the
-- others a TTL.
local function bury(token)
  clear_tombstones()
  local dead = lock.dead
  local first, last = string.find(dead, '\n' .. token .. ' ', 1, true)
  if first then
    local next = string.find(dead, '\n', last, true)
    dead = string.sub(dead, 1, first - 1) .. (next and string.sub(dead, next) or '')
  end
  dead = dead .. '\n' .. token .. ' ' .. int(now + retention)
  while #dead > 8192 do
    dead = string.gsub(dead, '^\n*[^\n]*', '') -- something, even if it is no tombstone
  end
  set_tombstones(dead)
  keep(0) -- see save
end

local function has_tombstone(token)
  return string.find(lock.dead, '\n' .. token .. ' ', 1, true) ~= nil
end
