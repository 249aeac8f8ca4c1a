-- owner_lease.lua: how the parts of an owner's lease go on and end.
--
-- Comes after <kind>_lease.lua, and builds on what that has for a single token.
--
-- KEYS[1]  lock

local extend_alone, free_alone = extend, free

local function extend(ttl)
  if not part then
    return extend_alone(ttl)
  end
  part.ttl = math.max(ttl, part.ttl)
  part.expires = math.max(part.expires, now + part.ttl + grace(part.ttl))
  keep(retention)
  part_write(token, part)
  local end_of_all = part
  parts(function(_, p)
    if p and p.expires > end_of_all.expires then
      end_of_all = p
    end
  end)
  last(end_of_all.expires, end_of_all.ttl)
end

-- End the part of this token, and the lease of its owner if it was the last.
local function free()
  if not part then
    return free_alone()
  end
  local rest
  parts(function(who, p)
    if who == token or not p then
      redis.call('HDEL', KEYS[1], 'o:' .. who)
    elseif not rest or p.expires > rest.expires then
      rest = p
    end
  end)
  if not rest then
    return free_alone()
  end
  if speaker == token then
    redis.call('HDEL', KEYS[1], 'carrier')
  end
  last(rest.expires, rest.ttl)
  part, held, informed = nil, false, nil
end
