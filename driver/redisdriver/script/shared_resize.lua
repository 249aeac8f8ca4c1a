-- shared_resize.lua: set the limit. It holds until the key ends, whatever requests say.
-- The token is that of this change: its tombstone keeps a repeat from undoing a later one.
--
-- KEYS[1]  lock
-- ARGV[4]  limit
--
-- Returns {1, more}. more as in mutex_release.lua; run this again then.

expire()
if not buried() then
  limit = tonumber(ARGV[4])
  redis.call('HSET', KEYS[1], 'limit', int(limit), 'resized', '1')
  -- From now on the key outlives leases by the whole retention, see lifetime.
  resized = true
  local last = now
  holders(function(_, h)
    last = math.max(last, h.expires)
  end)
  bury(token)
  keep(lifetime(last - now))
end
local more, news = grant()
spread(news)
return { 1, more }
