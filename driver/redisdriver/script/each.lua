-- each.lua: handle one after the other the locks that the short way has left.
--
-- Comes last in the scripts for many locks. Their short way, thin_acquire.lua or its like, has the
-- arguments, the replies and what was read. What comes before this has handle(at), which is called
-- with where the arguments of a lock begin once it is loaded, and returns the reply.
--
-- KEYS[n]  lock
-- ARGV[3]  of each lock these in turn: token

local AT_LENGTH = 8 -- locks in one call, so that no call holds up the server for long

local handled = 0
for i = 1, #KEYS do
  if not replies[i] and handled < AT_LENGTH then
    n, handled = i, handled + 1
    local at = (i - 1) * ARGUMENTS
    -- The short way read all locks before it left the first of them. Should a lock be among
    -- them twice, what was read is out of date for the second. The wrong version loads it
    -- from that, and two hold the lock.
    local record
    if #KEYS == 1 then
      record = records[i]
    end
    replies[i] = load(ARGV[3 + at], record)
    if not replies[i] then
      local reply = handle(at)
      replies[i] = save(lock.must) or reply
    end
  end
end
publish()
for i = 1, #KEYS do
  replies[i] = replies[i] or false
end
return replies
