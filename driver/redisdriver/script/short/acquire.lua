-- short/acquire.lua: take a lock that is free, come in beside others, or wait: in a straight line.
--
-- These are most calls. No function is defined for them, and no table of a lock is made. What does
-- not fit in, or looks odd, is left to op/acquire.lua, which would do the same: a test compares
-- them, answer by answer and field by field. Records are as in lib/record.lua. To write a number
-- costs as much as half a command, and to match a pattern twice that, so there are few of either.
--
-- KEYS[n]  lock
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[3]  of each lock these in turn, see op/acquire.lua: token
-- ARGV[4]  "ask birth place"
-- ARGV[5]  "ttl fences room weight limit owner client text"
--
-- Returns for each lock what op/acquire.lua does, or nothing yet.

do
  local us = string.sub('00000' .. clock[2], -6)
  local now_us_text, now_text = clock[1] .. us, clock[1] .. string.sub(us, 1, 3)
  local wish, ttl, fences, room, weight, limit, owner, whom -- of those who ask together mostly one
  local length, held, granted, waits -- what the records of a wish have in common
  local passed = {} -- locks in this call of which what was read is out of date, or that others are to get first
  for n = 1, #KEYS do
    repeat -- break leaves it to op/acquire.lua
      local at = (n - 1) * ARGUMENTS
      local token, standing, record = ARGV[3 + at], ARGV[4 + at], records[n]
      if wish ~= ARGV[5 + at] then
        wish, held, waits = ARGV[5 + at], nil, nil
        ttl, fences, room, weight, limit, owner, whom = string.match(wish, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
        length = ttl + grace(ttl + 0)
      end
      if weight + 0 > limit + 0 or replies[n] or passed[KEYS[n]] then
        break
      end

      -- Nobody holds it: it is a string of digits, the last fence that was given, or absent.
      local high -- the last fence that was given; see numbers_after
      if record then
        high = #record <= 16 and not string.find(record, '%D') and tonumber(record)
        if not high then
          break
        end
      elseif string.sub(standing, -2) == ' 0' and redis.call('EXISTS', KEYS[n]) == 0 then
        if int(now_us) ~= now_us_text then
          return { err = 'ERR this is a Redis server of 32 bits, which cannot keep locks' }
        end
        record, high = '0', now_us - 1
      end
      -- Or others use it. There is no owner, nobody has set the limit, no lease has ended, the clock was
      -- not set back, and this token is not dead.
      local v, life, head, dead, count, used, earliest, span, tag, whose, waiting
      if not record then
        v = redis.pcall('HMGET', KEYS[n], 'high', 'limit', 'life', 'h:1', 'shares', 't:' .. token, 'head', 'tail', 'waiting',
          'longest', 'birth', 'dead', 'owner', 'resized')
        high, life, head, dead = tonumber(v[1]), tonumber(v[3]), v[7], v[12]
        local holder = v[4]
        if not high or not life or not holder or v[2] ~= limit or v[13] or v[14] or string.find(holder, token, 1, true) == 1 then
          break
        end
        earliest, span, used, tag, whose = string.match(holder, '^ (%d+) (%d+) (%d+) (%S+) (.*)$', string.find(holder, ' ', 1, true))
        if v[5] then
          count, used, earliest, span = string.match(v[5], '^(%d+) (%d+) (%d+) (%d+)$')
        elseif whose then
          count, span = 1, span + grace(span + 0)
        end
        if not count or not whose or earliest + 0 < now or earliest + 0 > now + span then
          break
        end
        if dead then
          local till = string.match(dead, '^\n%S+ (%d+)') -- of the oldest tombstone
          if life < now + retention or not till or till + 0 <= now or string.find(dead, '\n' .. token .. ' ', 1, true) then
            break
          end
        end
      end
      if high >= now_us then
        break
      end

      -- Nobody waits, and there is room. It is granted numbers from first on.
      if record or not head and used + weight <= limit + 0 then
        if owner ~= '-' then
          break
        end
        if not held then
          held = ' ' .. int(now + length) .. ' ' .. ttl .. ' ' .. weight .. ' - '
          granted = ' ' .. now_us_text .. ' ' .. now_text .. ' ' .. whom
        end
        local first, reply = now_us + 1 - fences, nil
        local numbers
        if first > high then
          numbers = int(first) .. ' ' .. fences
        else
          numbers = int(high + 1) .. ' ' .. int(now_us - high)
        end
        if record then
          reply = redis.pcall('SET', KEYS[n], now_us_text .. ' ' .. limit .. ' ' .. token .. held .. numbers .. granted,
            'PX', int(retention + length))
          replies[n], left, passed[KEYS[n]] = reply.err and reply or numbers, left - 1, true
          break
        end
        if v[6] or life < now + length + retention / 2 then
          break
        end
        if now + length < earliest + 0 then
          earliest, span = int(now + length), length
        end
        count = int(count + 1)
        reply = redis.pcall('HSET', KEYS[n], 'h:' .. count, token .. held .. numbers .. granted, 't:' .. token, 'h' .. count,
          'high', now_us_text, 'shares', count .. ' ' .. int(used + weight) .. ' ' .. earliest .. ' ' .. int(span))
        if type(reply) == 'number' then
          replies[n], left = numbers, left - 1
        end
        break
      end

      -- All of it is held until after the next heartbeat, so the token waits.
      local lasts, stands, place, first, reply = patience(ttl + 0), v[6], nil, nil, nil
      if room == '0' or used + 0 ~= limit + 0 or earliest + 0 < now + ttl / 3 or ttl + 0 > (tonumber(v[10]) or 0)
        or life < now + lasts + retention / 2 or not tonumber(v[11]) then
        break
      end
      if stands then -- it says again that it does
        place = head and string.match(stands, '^w(%d+)$')
        local who, ask = string.match(place and redis.call('HGET', KEYS[n], 'w:' .. place) or '', '^(%S+) (%d+) ')
        if who ~= token or ask + 0 > string.match(standing, '^%d+') + 0 then
          break
        end
        first = head == place
      else
        waiting = tonumber(v[9] or 0)
        if standing ~= '1 0 0' or not tonumber(v[8]) or not waiting or waiting >= room + 0 then
          break
        end
        place, first = int(v[8] + 1), not head
      end
      if first and (v[5] or string.find(whose, '^%d+ %d+ %d+ %d+ %S*!')) then
        break -- holders may want to hear that somebody waits
      end
      if not waits then
        local space = string.find(whom, ' ', 1, true)
        local client = string.sub(whom, 1, space - 1)
        local heard = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1] .. string.match(client, '^[^.!]*'))[2]
        waits = ' ' .. weight .. ' ' .. ttl .. ' ' .. fences .. ' ' .. int(now + lasts) .. ((tonumber(heard) or 0) > 0 and ' 1 ' or ' 0 ')
          .. client .. ' ' .. owner .. string.sub(whom, space)
      end
      if stands then
        reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, token .. ' ' .. string.match(standing, '^%d+') .. waits)
      elseif head then
        reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, token .. ' 1' .. waits, 't:' .. token, 'w' .. place, 'tail', place,
          'waiting', int(waiting + 1))
      else
        reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, token .. ' 1' .. waits, 't:' .. token, 'w' .. place, 'tail', place,
          'waiting', int(waiting + 1), 'head', place)
      end
      if type(reply) == 'number' then
        replies[n], left = 'waits ' .. (first and int(earliest - now + 1) or '0') .. ' ' .. v[11] .. ' ' .. place .. ' ' .. tag .. ' '
          .. now_text .. ' ' .. whose, left - 1
      end
    until true
    if not replies[n] then
      passed[KEYS[n]] = true
    end
  end
end
if left == 0 then
  return replies
end
