-- fence.lua: the numbers of grants.

-- fence returns the number of a grant from a counter, as a text; '' if there is no counter. Only a
-- grant counts, so a repeat finds its own number. If somebody has deleted the counter meanwhile it
-- gets a small one, which guards refuse, rather than none.
local function fence(counter, first)
  if not counter then
    return ''
  end
  local number = not first and redis.call('GET', counter)
  if not number then
    redis.call('INCR', counter) -- Lua rounds its answer from 2^53 on.
    number = redis.call('GET', counter)
  end
  return number
end

