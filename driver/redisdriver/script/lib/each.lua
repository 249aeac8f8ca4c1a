-- lib/each.lua: handle one after the other the locks that the short way has left.
--
-- Comes last in the scripts for many locks. What comes before this has handle(at), which is called
-- with where the arguments of a lock begin once it is loaded, and returns the reply.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token

-- No call holds up the server for long. A client that is far makes few calls, each for more locks.
local AT_LENGTH = 8 -- locks in one call, unless that says how many
local ENOUGH = 512 -- records of holders and waiters to read before a call handles more than these
at_length = (at_length or AT_LENGTH) + 0

-- A record can be anything that somebody has written. What cannot be handled is refused, and the
-- others are handled nevertheless: this is run protected.
local function handle_one(i, at)
  -- All locks were read before the first of them was written. Should a lock be among
  -- them twice, what was read is out of date for the second. The wrong version loads it
  -- from that, and two hold the lock.
  local record
  if #KEYS == 1 then
    record = records[i]
  end
  local refused = load(ARGV[3 + at], record)
  if refused then
    return refused, true
  end
  local reply = handle(at)
  refused = save(lock.must)
  return refused or reply, refused
end

local handled, told = 0, {}
for i = 1, #KEYS do
  if not replies[i] and (handled < AT_LENGTH or handled < at_length and looked < ENOUGH) then
    n, handled, news = i, handled + 1, {}
    local done, reply, refused = pcall(handle_one, i, (i - 1) * ARGUMENTS)
    if done or type(reply) == 'table' then
      replies[i] = reply -- a table that is an error is a command that was refused
    elseif find(reply, '^%u+ ') then
      replies[i] = { err = reply } -- the same, from Redis 7 on
    elseif find(reply, ': %-%u') or find(reply, ': The user executing the script ', 1, true) then
      replies[i] = { err = 'ERR Error running script ' .. reply } -- the same before Redis 7
    else
      replies[i] = { err = 'WRONGTYPE ' .. KEYS[n] .. ' is no lock: ' .. (string.gsub(reply, '%c', ' ')) }
    end
    if done and not refused then -- else nothing was saved that could be told of
      for client, lines in pairs(news) do
        told[client] = told[client] and told[client] .. '\n' .. lines or lines
      end
    end
  end
end
news = told
publish()
for i = 1, #KEYS do
  replies[i] = replies[i] or false
end
return replies
