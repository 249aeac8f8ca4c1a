-- short/release.lua: give a lock up, and to the first who waits for it, in a straight line.
--
-- These are most calls. No function is defined for them, and no table of a lock is made. What does
-- not fit in, or looks odd, is left to op/release.lua, which would do the same: a test compares
-- them, answer by answer and field by field. Records are as in lib/record.lua.
--
-- KEYS[n]  lock
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[3]  of each lock these in turn, see op/release.lua: token
-- ARGV[4]  "unsettled tag"
--
-- Returns for each lock HELD, or nothing yet.

do
  local HELD, SETTLED, NOTICE = 1, 48, 33
  local news, secrets, listening = {}, {}, {} -- what each client is to be told, sealed with that; how many listen
  for n = 1, #KEYS do
    repeat -- break leaves it to op/release.lua
      local at = (n - 1) * ARGUMENTS
      local token = ARGV[3 + at]
      if string.byte(ARGV[4 + at]) ~= SETTLED or passed[KEYS[n]] then
        break -- a tombstone is to be left
      end

      -- One token holds it, with a TTL above the retention, or short/leave.lua would have done. Nobody waits,
      -- and there is nothing else to remember: only the last fence stays. If that is refused, memory is full. The
      -- long way knows how to write all the same.
      local record = records[n]
      if record then
        local high, holder = match(record, '^(%d+) %d+ (%S+) ')
        if holder == token and #high <= 16 and high + 0 <= now_us and not redis.pcall('SET', KEYS[n], high, 'PXAT', int(now + retention)).err then
          replies[n], left = HELD, left - 1
          passed[KEYS[n]] = true
        end
        break
      end

      -- Others hold it, too, or wait. There is no owner, nobody has set the limit, no lease has ended,
      -- and the clock was not set back.
      local given, limit, life, holder, shares, stands, head, tail, waiting, longest, dead, owner, resized =
        unpack(redis.pcall('HMGET', KEYS[n], 'high', 'limit', 'life', 'h:1', 'shares', 't:' .. token, 'head', 'tail',
          'waiting', 'longest', 'dead', 'owner', 'resized'))
      local high = tonumber(given)
      life = tonumber(life)
      if not high or high >= now_us or not life or not holder or owner or resized then
        break
      end
      local count, slot, mine, last, used, earliest, span = '1', '1', holder, nil, nil, nil, nil
      if shares then
        count, used, earliest, span = match(shares, SHARES)
        slot = match(stands or '', '^h(%d+)$')
        if not count or not slot then
          break
        end
        local seats = redis.call('HMGET', KEYS[n], 'h:' .. slot, 'h:' .. count)
        mine, last = seats[1] or '', seats[2] or ''
      end
      local who, expires, ttl, weight, tag = match(mine, '^(%S+) (%d+) (%d+) (%d+) (%S+) ')
      if who ~= token then
        break
      elseif shares then
        used, earliest, span = used - weight, earliest + 0, span + 0
      else
        used, earliest, span = 0, expires + 0, ttl + grace(ttl + 0)
      end
      if earliest < now or earliest > now + span then
        break
      end
      -- The last holder takes the slot.
      local moved = slot ~= count and match(last, '^%S+')
      if slot ~= count and not moved then
        break
      end

      if not head then
        -- Leave: nobody waits.
        if waiting then
          break
        end
        if count == '1' then
          if not dead and not redis.pcall('SET', KEYS[n], given, 'PXAT', int(now + retention)).err then
            replies[n], left = HELD, left - 1
          end
          break
        end
        -- If HSET is refused, memory is full, or the user lacks the right. If HDEL is, it is the right,
        -- and HSET puts back what was there. Then the long way answers.
        local reply = 0
        if count == '2' then
          -- One stays, and the key need not live longer than that one.
          local stays = match(slot == '1' and last or holder, '^%S+ (%d+) ')
          local lasts = stays and retention + stays - now
          if not lasts or lasts <= retention or life < now + lasts - retention / 2 or life > now + lasts or life < now + retention and dead then
            break
          end
          if moved then
            reply = redis.pcall('HSET', KEYS[n], 'h:1', last, 't:' .. moved, 'h1')
          end
        else
          reply = redis.pcall('HSET', KEYS[n], 'shares', format('%d %d %d %d', count - 1, used, earliest, span))
        end
        if type(reply) ~= 'number' then
          break
        end
        if count == '2' then
          reply = redis.pcall('HDEL', KEYS[n], 't:' .. token, 'h:2', 'shares')
        else
          reply = redis.pcall('HDEL', KEYS[n], 't:' .. token, 'h:' .. count)
        end
        if type(reply) ~= 'number' then
          redis.call('HSET', KEYS[n], 'shares', shares, 'h:' .. slot, mine, 't:' .. (moved or token), 'h' .. count)
          break
        end
        if moved and count ~= '2' then
          redis.call('HSET', KEYS[n], 'h:' .. slot, last, 't:' .. moved, 'h' .. slot)
        end
        replies[n], left = HELD, left - 1
        break
      end

      -- Hand over: the first who waits is there, and needs just what was held.
      local field = 'w:' .. head
      local waiter = redis.call('HGET', KEYS[n], field) or ''
      local wtoken, ask, wweight, wttl, fences, alive, heard, id, rest, wowner, text =
        match(waiter, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d) ([^ .!]+)(%S*) (%S+) (.*)$')
      local place, queued, next = tonumber(head), tonumber(waiting), nil
      tail, longest = tonumber(tail), tonumber(longest or 0)
      if wowner ~= '-' or not place or not tail or not queued or not longest then
        break
      end
      local wlasts = wttl + 0
      alive, used = alive + 0, used + wweight
      if alive < now or alive > now + patience(wlasts) or used ~= tonumber(limit) then
        break
      elseif place < tail then
        next = int(place + 1)
        if queued < 2 or string.byte(rest, -1) == NOTICE then
          break
        end
      end

      -- The lease that it gets outlasts the heartbeats of the others, and the key that lease.
      local length = wlasts + grace(wlasts)
      local lasts, till = retention + length, now + length
      if not shares or till < earliest then
        earliest, span = till, length
      end
      if next and now + longest / 3 > earliest or life < now + lasts - retention / 2
        or life < now + retention and dead or not next and count == '1' and life > now + lasts then
        break
      end

      -- Its client is there.
      if heard == '1' then
        listening[id] = listening[id] or redis.pcall('PUBSUB', 'NUMSUB', ARGV[1] .. id)[2] or -1
        if listening[id] == 0 then
          break
        end
      end

      -- It holds the lock from now on, with numbers from first on: see numbers_after.
      local latest, first, numbers = int(now_us), now_us + 1 - fences, nil
      if first > high then
        numbers = int(first) .. ' ' .. fences
      else
        numbers = format('%d %d', high + 1, now_us - high)
      end
      record = wtoken .. ' ' .. int(till) .. ' ' .. wttl .. ' ' .. wweight .. ' - ' .. numbers .. ' ' .. int(now)
        .. ' ' .. id .. rest .. ' ' .. text
      local reply -- as above
      if next then
        reply = redis.pcall('HSET', KEYS[n], 'h:' .. count, record, 't:' .. wtoken, 'h' .. count, 'high', latest,
          'head', next, 'waiting', int(queued - 1))
      else
        reply = redis.pcall('HSET', KEYS[n], 'h:' .. count, record, 't:' .. wtoken, 'h' .. count, 'high', latest)
      end
      if type(reply) ~= 'number' then
        break
      end
      if next then
        reply = redis.pcall('HDEL', KEYS[n], field, 't:' .. token)
      else
        reply = redis.pcall('HDEL', KEYS[n], field, 't:' .. token, 'head', 'waiting')
      end
      if type(reply) ~= 'number' then
        redis.call('HSET', KEYS[n], 'h:' .. count, shares and last or mine, 't:' .. wtoken, 'w' .. head, 'high', given,
          'head', head, 'waiting', waiting)
        break
      end
      if shares then
        redis.call('HSET', KEYS[n], 'shares', format('%s %d %d %d', count, used, earliest, span))
      end
      if moved then
        redis.call('HSET', KEYS[n], 'h:' .. slot, last, 't:' .. moved, 'h' .. slot)
      end
      replies[n], left = HELD, left - 1
      if id ~= '-' then
        local told = sub(ARGV[4 + at], 3)
        told = told == '-' and tag or told
        local line = 'granted ' .. wtoken .. ' ' .. ask .. ' ' .. numbers .. (told ~= '-' and ' ' .. told or '')
        news[id] = news[id] and news[id] .. '\n' .. line or line
        secrets[id] = match(rest, '^%.?([^!]*)')
      end
    until true
    if not replies[n] then
      passed[KEYS[n]] = true
    end
  end
  -- Who was granted a lock is told last, see publish in lib/queue.lua.
  for id, lines in pairs(news) do
    redis.pcall('PUBLISH', ARGV[1] .. id, lines .. '\n' .. redis.sha1hex(secrets[id] .. lines .. secrets[id]))
  end
end
if left == 0 then
  return replies
end
