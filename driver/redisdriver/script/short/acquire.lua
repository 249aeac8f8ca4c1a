-- short/acquire.lua: take a lock that is free, come in beside others, or wait: in a straight line.
--
-- These are most calls. No function is defined for them, and no table of a lock is made. What does
-- not fit in, or looks odd, is left to op/acquire.lua, which would do the same: a test compares
-- them, answer by answer and field by field. Records are as in lib/record.lua. To write a number
-- costs as much as half a command, to match a pattern twice that, and to read a number a fifth, so
-- there are few of each.
--
-- KEYS[n]  lock
-- ARGV[1]  wake channels are called this followed by the client's id
-- ARGV[3]  of each lock these in turn, see op/acquire.lua: token
-- ARGV[4]  "ask birth place"
-- ARGV[5]  "ttl fences room weight limit owner client text"
--
-- Returns for each lock what op/acquire.lua does, or nothing yet.

do
  local request, ttl, fences, room, weight, limit, owner, whom -- of those who ask together mostly one
  local lasts, weighs, most, length -- its numbers
  local held, granted, waits, last -- what the records of a request have in common
  for n = 1, #KEYS do
    repeat -- break leaves it to op/acquire.lua
      local at = (n - 1) * ARGUMENTS
      local token, asked, record = ARGV[3 + at], ARGV[4 + at], records[n]
      if request ~= ARGV[5 + at] then
        request, held, waits = ARGV[5 + at], nil, nil
        ttl, fences, room, weight, limit, owner, whom = match(request, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
        lasts, weighs, most = ttl + 0, weight + 0, limit + 0
        length = lasts + grace(lasts)
      end
      if weighs > most or replies[n] or passed[KEYS[n]] then
        break
      end

      -- Nobody holds it: it is a string of digits, the last fence that was given, or absent.
      local high -- the last fence that was given; see numbers_after
      if record then
        high = #record <= 16 and not find(record, '%D') and tonumber(record)
        if not high then
          break
        end
      elseif sub(asked, -2) == ' 0' and redis.call('EXISTS', KEYS[n]) == 0 then
        if int(now_us) + 0 ~= now_us then
          return { err = 'ERR this is a Redis server of 32 bits, which cannot keep locks' }
        end
        record, high = '0', now_us - 1
      end
      -- Or others use it. There is no owner, nobody has set the limit, no lease has ended, the clock was
      -- not set back, and this token is not dead.
      local size, life, holder, shares, stands, head, tail, waiting, longest, birth, dead, owned, resized -- fields of it
      local count, used, earliest, span, tag, whose
      if not record then
        high, size, life, holder, shares, stands, head, tail, waiting, longest, birth, dead, owned, resized =
          unpack(redis.pcall('HMGET', KEYS[n], 'high', 'limit', 'life', 'h:1', 'shares', 't:' .. token, 'head', 'tail', 'waiting',
            'longest', 'birth', 'dead', 'owner', 'resized'))
        high, life = tonumber(high), tonumber(life)
        if not high or not life or size ~= limit or owned or resized then
          break
        end
        if shares then
          count, used, earliest, span = match(shares, SHARES)
        else
          count, earliest, span, used, tag, whose = match(holder or '', HOLDER)
        end
        if not count or count == token then
          break
        end
        used, earliest, span = used + 0, earliest + 0, span + 0
        if not shares then
          count, span = 1, span + grace(span)
        end
        if earliest < now or earliest > now + span then
          break
        end
        if dead then
          local till = match(dead, '^\n%S+ (%d+)') -- of the oldest tombstone
          if life < now + retention or not till or till + 0 <= now or find(dead, '\n' .. token .. ' ', 1, true) then
            break
          end
        end
      end
      if high >= now_us then
        break
      end

      -- Nobody waits, and there is room. It is granted numbers from first on.
      if record or not head and used + weighs <= most then
        if owner ~= '-' then
          break
        end
        local ends = now + length
        if not held then
          held, last = ' ' .. int(ends) .. ' ' .. ttl .. ' ' .. weight .. ' - ', int(now_us)
          granted = ' ' .. int(now) .. ' ' .. whom
        end
        local first, reply = now_us + 1 - fences, nil
        local numbers
        if first > high then
          numbers = int(first) .. ' ' .. fences
        else
          numbers = format('%d %d', high + 1, now_us - high)
        end
        if record then
          reply = redis.pcall('SET', KEYS[n], last .. ' ' .. limit .. ' ' .. token .. held .. numbers .. granted,
            'PXAT', int(now + retention + length))
          replies[n], left = reply.err and reply or numbers, left - 1
          passed[KEYS[n]] = true
          break
        end
        if stands or life < ends + retention / 2 then
          break
        end
        if ends < earliest then
          earliest, span = ends, length
        end
        shares = format('%d %d %d %d', count + 1, used + weighs, earliest, span)
        count = match(shares, '^%d+')
        reply = redis.pcall('HSET', KEYS[n], 'h:' .. count, token .. held .. numbers .. granted, 't:' .. token, 'h' .. count,
          'high', last, 'shares', shares)
        if type(reply) == 'number' then
          replies[n], left = numbers, left - 1
        end
        break
      end

      -- All of it is held until after the next heartbeat, so the token waits.
      local patient, place, first, reply = now + patience(lasts), nil, nil, nil
      if room == '0' or used ~= most or earliest < now + lasts / 3 or lasts > (tonumber(longest) or 0)
        or life < patient + retention / 2 or not tonumber(birth) then
        break
      end
      if shares then
        tag, whose = match(holder or '', '^%S+ %d+ %d+ %d+ (%S+) (.*)$') -- part of HOLDER
      end
      local ask = '1'
      if stands then -- it says again that it does
        place, ask = head and match(stands, '^w(%d+)$'), match(asked, '^%d+')
        local who, before = match(place and redis.call('HGET', KEYS[n], 'w:' .. place) or '', '^(%S+) (%d+) ')
        if who ~= token or before + 0 > ask + 0 then
          break
        end
        first = head == place
      else
        tail, waiting = tonumber(tail), tonumber(waiting or 0)
        if asked ~= '1 0 0' or not tail or not waiting or waiting >= room + 0 then
          break
        end
        place, waiting, first = int(tail + 1), int(waiting + 1), not head
      end
      if not whose or first and (shares or find(whose, '^%d+ %d+ %d+ %S*!')) then
        break -- holders may want to hear that somebody waits
      end
      if not waits then
        local client, text = match(whom, '^(%S+)(.*)$')
        local heard = redis.pcall('PUBSUB', 'NUMSUB', ARGV[1] .. match(client, '^[^.!]*'))[2]
        waits = ' ' .. weight .. ' ' .. ttl .. ' ' .. fences .. ' ' .. int(patient) .. ((tonumber(heard) or 0) > 0 and ' 1 ' or ' 0 ')
          .. client .. ' ' .. owner .. text
      end
      local waiter = token .. ' ' .. ask .. waits
      if stands then
        reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, waiter)
      else
        reply = redis.pcall('HSET', KEYS[n], 'w:' .. place, waiter, 't:' .. token, 'w' .. place, 'tail', place, 'waiting', waiting,
          'head', head or place)
      end
      if type(reply) == 'number' then
        replies[n], left = 'waits ' .. (first and int(earliest - now + 1) or '0') .. ' ' .. birth .. ' ' .. place .. ' ' .. tag .. ' '
          .. int(now) .. ' ' .. whose, left - 1
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
