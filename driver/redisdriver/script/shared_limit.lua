-- shared_limit.lua: refuse what does not go with the limit.
--
-- Comes after lock_again.lua in shared_acquire.lua.
--
-- KEYS[1]  lock
--
-- Returns as shared_acquire.lua does.

if not agree(asked) then
  -- Others use the lock with their limit. But perhaps they are all dead.
  local more, news = grant()
  spread(news)
  if not agree(asked) then
    return { 5, limit, more }
  end
end
if weight > limit then
  if mine then -- it waited before the limit was lowered
    waiter_drop(mine, token)
  end
  local more, news = grant()
  spread(news)
  return { 4, limit, more }
end
