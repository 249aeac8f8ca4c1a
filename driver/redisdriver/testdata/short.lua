-- short.lua: do the same to a lock the short way and the general way, and say what differs.
--
-- Go puts the scripts in front of this, in the table ways: ways.short.one.acquire and so on. The clock,
-- the ends of keys, who listens, what is published and how much memory there is are made up here. All
-- else is the server's.
--
-- KEYS     locks that are handled the short way, and as many that are handled the general way
-- ARGV[1]  steps
--
-- Returns what differs, if anything, and how often the short way was enough, for what.

local real, steps, half = redis, cjson.decode(ARGV[1]), #KEYS / 2
local us, ends, deaf, full, seats = 1700000000000500, {}, {}, false, {}

local function milli()
  return math.floor(us / 1000)
end

local SECRETS = { ['wake:a'] = 'secret', ['wake:b'] = 'other', ['wake:c'] = 'third', ['wake:d'] = '' }
local WRITES = { SET = true, HSET = true, HDEL = true, DEL = true, PEXPIREAT = true }

-- What a script takes for Redis.
local function server()
  local self = { sha1hex = real.sha1hex, news = {}, wrote = false, general = false }
  local function run(command, ...)
    local key, second, third, fourth = ...
    if command == 'TIME' then
      return { string.format('%d', math.floor(us / 1000000)), string.format('%d', us % 1000000) }
    elseif command == 'PUBLISH' then
      -- Which news goes in one message makes no difference.
      local lines, seal = string.match(second, '^(.*)\n(%x+)$')
      local secret = SECRETS[key]
      assert(seal == real.sha1hex(secret .. lines .. secret), second)
      self.news[key] = (self.news[key] or '') .. lines .. '\n'
      return 1
    elseif command == 'PUBSUB' then
      return { second, deaf[second] and 0 or 1 }
    elseif command == 'PTTL' then
      return real.call('EXISTS', key) == 1 and (ends[key] and ends[key] - milli() or -1) or -2
    elseif full and not self.wrote and (command == 'SET' or command == 'HSET') then
      return { err = 'OOM command not allowed' }
    end
    self.wrote = self.wrote or WRITES[command]
    if command == 'SET' and third == 'KEEPTTL' then
      return real.pcall(command, ...)
    elseif command == 'SET' then
      assert(third == 'PXAT' and string.find(fourth, '^%d+$'), fourth)
      ends[key] = fourth + 0
      return real.pcall('SET', key, second)
    elseif command == 'PEXPIREAT' then
      ends[key] = second + 0
      return real.call('EXISTS', key)
    end
    local reply = real.pcall(command, ...)
    if WRITES[command] and real.call('EXISTS', key) == 0 then
      ends[key] = nil
    end
    return reply
  end
  self.pcall = run
  function self.call(...)
    local reply = run(...)
    if type(reply) == 'table' and reply.err then
      error(reply.err, 0)
    end
    return reply
  end
  return self
end

-- What there is at the key, as a text.
local function contents(key)
  local text = real.call('MGET', key)[1]
  if not text then
    local list, fields = real.call('HGETALL', key), {}
    for i = 1, #list, 2 do
      fields[#fields + 1] = list[i] .. '=' .. list[i + 1]
    end
    table.sort(fields)
    text = table.concat(fields, ', ')
  end
  return text .. (text ~= '' and ' until ' .. string.format('%d', ends[key] or 0) or '')
end

local function show(reply)
  if type(reply) ~= 'table' then
    return tostring(reply)
  elseif reply.err then
    return 'error'
  end
  local words = {}
  for i = 1, #reply do
    words[i] = show(reply[i])
  end
  return '{' .. table.concat(words, ' ') .. '}'
end

local function form(key)
  local text = real.call('MGET', key)[1]
  if text then
    return string.find(text, ' ') and 'held' or 'free'
  elseif real.call('EXISTS', key) == 0 then
    return 'nothing'
  end
  local v = real.call('HMGET', key, 'shares', 'head', 'h:1', 'dead')
  return (v[1] and 'shared' or v[3] and 'fat' or 'unheld') .. (v[2] and '+queue' or '') .. (v[4] and '+dead' or '')
end

local counts, told, story = {}, nil, {} -- what has happened
for i, step in ipairs(steps) do
  us, full = us + step.us, step.full
  deaf = {}
  for _, client in ipairs(step.deaf) do
    deaf['wake:' .. client] = true
  end
  for _, key in ipairs(KEYS) do
    if ends[key] and ends[key] <= milli() then
      real.call('DEL', key)
      ends[key] = nil
    end
  end
  local argv = { 'wake:', '60000' }
  for j, arg in ipairs(step.args) do
    if string.sub(arg, -5) == ' seat' then
      arg = string.sub(arg, 1, -5) .. (seats[step.args[j - 1]] or '0 0')
    end
    argv[#argv + 1] = arg
  end
  local results, before = {}, form(KEYS[step.locks[1]])
  for side, way in ipairs({ 'short', 'general' }) do
    local keys, redis = {}, server()
    for j, lock in ipairs(step.locks) do
      keys[j] = KEYS[lock + (side - 1) * half]
    end
    local f = ways[way][#keys > 1 and 'many' or 'one'][step.verb]
    local done, reply = pcall(f, redis, keys, argv)
    local all = { done and show(reply) or 'error' }
    for _, client in ipairs({ 'wake:a', 'wake:b', 'wake:c', 'wake:d' }) do
      local lines = {}
      for line in string.gmatch(redis.news[client] or '', '[^\n]+') do
        lines[#lines + 1] = line
      end
      if #keys > 1 then
        table.sort(lines) -- of different locks the order is of no interest
      end
      all[1] = all[1] .. (#lines > 0 and '\n' .. client .. ': ' .. table.concat(lines, '\n') or '')
    end
    for lock = 1, half do
      all[#all + 1] = contents(KEYS[lock + (side - 1) * half])
    end
    results[side] = table.concat(all, '\n    ')
    if side == 1 and not done then
      told = 'the short way fails: ' .. tostring(type(reply) == 'table' and reply.err or reply)
    elseif side == 1 and #keys == 1 and not redis.general then
      local after, what = form(keys[1]), type(reply) == 'table' and show(reply[1]) or string.match(reply, '^waits') or type(reply)
      local name = step.verb .. ' ' .. before .. ' to ' .. after .. ': ' .. what
      counts[name] = (counts[name] or 0) + 1
    end
    if side == 1 and done and #keys == 1 and type(reply) == 'string' then
      seats[argv[3]] = string.match(reply, '^waits %d+ (%d+ %d+)') or seats[argv[3]]
    end
  end
  if not told and results[1] ~= results[2] then
    told = 'short\n    ' .. results[1] .. '\n  general\n    ' .. results[2]
  end
  if told then
    told = 'step ' .. i .. ', ' .. cjson.encode(step) .. ' on ' .. before .. '\n  ' .. told
      .. '\n  before\n' .. table.concat(story, '\n', math.max(1, #story - 5))
    break
  end
  story[i] = cjson.encode(step) .. '\n    ' .. results[1]
end
for _, key in ipairs(KEYS) do
  real.call('DEL', key)
end
return { told or '', cjson.encode(counts) }
