-- owner.lua: tokens that hold a lock together, on behalf of one owner.
--
-- Comes before queue.lua. An owner holds the lock as if it were a token itself. It is
-- called ' ' .. owner then, as no token can be. Each of its tokens has a part in that,
-- with a lease of its own, in a field of the hash:
--
--   o:<token>  "expires ttl since client owner text"
--
-- The lease of the owner is that of the token whose lease ends last. So who asks for the
-- lock, or releases it, for himself alone knows nothing of all this.
--
-- KEYS[1]  lock

local part -- of this token, if it has one

local function part_write(who, p)
  redis.call('HSET', KEYS[1], 'o:' .. who, string.format('%.0f %.0f %.0f ', p.expires, p.ttl, p.since)
    .. p.client .. ' ' .. p.owner .. ' ' .. p.text)
end

-- Returns nothing if its time is over. As for other leases, it cannot have more time left
-- than its whole length.
local function part_read(record)
  if not record then
    return nil
  end
  local p = {}
  p.expires, p.ttl, p.since, p.client, p.owner, p.text = string.match(record, '^(%d+) (%d+) (%d+) (%S+) (%S+) (.*)$')
  p.ttl, p.since = tonumber(p.ttl), tonumber(p.since)
  p.expires = math.min(tonumber(p.expires), now + p.ttl + grace(p.ttl))
  return p.expires >= now and p or nil
end

-- Call visit with each token that has a part, and with the part unless its time is over.
local function parts(visit)
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do
    local who = string.match(fields[i], '^o:(.*)$')
    if who then
      visit(who, part_read(fields[i + 1]))
    end
  end
end

local function is_owner(who)
  return string.byte(who) == 32
end

-- End the parts of an owner. Returns whether it is one.
local function disband(who)
  if is_owner(who) then
    parts(function(token)
      redis.call('HDEL', KEYS[1], 'o:' .. token)
    end)
  end
  return is_owner(who)
end

-- Whether another token than this one has a part.
local function has_kin(who)
  local found = false
  parts(function(token, p)
    found = found or p and token ~= who
  end)
  return found
end

-- Add to a list who holds by that name, with their clients.
local function bearers(who, client, list)
  if not is_owner(who) then
    list[#list + 1] = { token = who, client = client }
    return
  end
  parts(function(token, p)
    if p then
      list[#list + 1] = { token = token, client = p.client }
    end
  end)
end
