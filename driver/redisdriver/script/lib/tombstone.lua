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
    local _, last, till = find(lock.dead, '^\n%S+ (%d+)', from)
    if not till or tonumber(till) > now then
      break
    end
    from = last + 1
  end
  set_tombstones(sub(lock.dead, from))
end

local function has_tombstone(token)
  return find(lock.dead, '\n' .. token .. ' ', 1, true) ~= nil
end
