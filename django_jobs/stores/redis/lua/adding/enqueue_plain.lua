-- enqueue_plain: → queued, for jobs without controls, time or schedule: most calls of enqueue_many().  It is kept short:
-- the script's own work costs more than its commands (every call creates each function of a library again).
--
-- ARGV  1 clock   2 channel   3 number   4 max length (0 = none)   5 ids are remembered for (ms)
--       6 digest with which all these ids are remembered, "" = they are not
--       then per job: id, record up to the enqueue time, record after it ("" if the first part is the whole record)
--
-- Returns one word per job, as values.Added.
--! use clock answers
--! keys jobs queued alone blocked seq totals minutes wake remembered remembered_at
local call, match, sub, format = redis.call, string.match, string.sub, string.format
local max_length, FIRST = tonumber(ARGV[4]), 7
local total = (#ARGV - FIRST + 1) / 3
local WORDS = {a = 'added', e = 'exists', f = 'full'}

-- The answer is kept as one letter per job, because the jobs themselves may have run and left the history.
local before = answered()
if before then
    local words = {}
    for i = 1, #before do
        words[i] = WORDS[string.sub(before, i, i)]
    end
    return words
end

local result, ids, fields, members, names, by_name = {}, {}, {}, {}, {}, {}
local time = format('%d', now)
for i = 1, total do
    ids[i] = ARGV[FIRST + 3 * i - 3]
end
local stored = call('HMGET', jobs, unpack(ids))
-- An id that was sent before as the caller's own: this is a late copy of that request.
local known = call('EXISTS', remembered) == 1 and call('HMGET', remembered, unpack(ids)) or {}
local n = 0
for i = 1, total do
    local at = known[i] and not stored[i] and call('ZSCORE', remembered_at, ids[i])
    if at and tonumber(at) + tonumber(ARGV[5]) > now then
        result[i], stored[i] = 'exists', true
    elseif stored[i] then
        -- same bytes except for the time: this call was repeated; other bytes: the id exists
        local head, rest = ARGV[FIRST + 3 * i - 2], ARGV[FIRST + 3 * i - 1]
        local size = #head
        local same = stored[i] == head
            or (rest ~= '' and sub(stored[i], 1, size) == head and match(stored[i], '^%d+(.*)$', size + 1) == rest)
        result[i] = same and 'added' or 'exists'
    else
        local record, rest = ARGV[FIRST + 3 * i - 2], ARGV[FIRST + 3 * i - 1]
        n = n + 1
        names[n] = match(record, '^[^\n]*\n([^\n]*)\n') or ''
        if rest ~= '' then
            record = record .. time .. rest
        end
        fields[2 * n - 1], fields[2 * n] = ids[i], record
        result[i] = 'added'
    end
end
local function letters()
    local out = {}
    for i = 1, total do
        out[i] = string.sub(result[i], 1, 1)
    end
    return table.concat(out)
end
if n == 0 then
    if in_doubt then
        answer(letters())
    end
    return result
end
if max_length > 0 and call('ZCARD', queued) + call('ZCARD', alone) + call('ZCARD', blocked) + n > max_length then
    for i = 1, total do
        result[i] = stored[i] and result[i] or 'full'
    end
    if in_doubt then
        answer(letters())
    end
    return result
end

call('HSET', jobs, unpack(fields)) -- first write: refused when Redis is full, before anything has changed
local last = redis.pcall('INCRBY', seq, n) -- as in next_number and make_ready, with priority 0
if type(last) == 'table' or last < n or last >= 2 ^ 44 then
    call('SET', seq, string.format('%.0f', now))
    last = call('INCRBY', seq, n)
end
local score = 100.5 * 2 ^ 45 + last - n
for i = 1, n do
    members[2 * i - 1], members[2 * i] = format('%d', score + i), fields[2 * i - 1] -- cheaper than Redis' conversion
    by_name[names[i]] = (by_name[names[i]] or 0) + 1
end
call('ZADD', queued, unpack(members))
if ARGV[6] ~= '' then
    local digests, times = {}, {}
    for i = 1, n do
        digests[2 * i - 1], digests[2 * i] = fields[2 * i - 1], ARGV[6]
        times[2 * i - 1], times[2 * i] = time, fields[2 * i - 1]
    end
    redis.pcall('HSET', remembered, unpack(digests))
    redis.pcall('ZADD', remembered_at, unpack(times))
end
local waiting = redis.pcall('LLEN', wake)
if waiting == 0 then
    call('RPUSH', wake, '1')
elseif type(waiting) == 'table' then -- the key has another type
    call('DEL', wake)
    call('RPUSH', wake, '1')
end
for name, by in pairs(by_name) do
    if type(redis.pcall('HINCRBY', totals, 'enqueued:' .. name, by)) == 'table' then -- as in count()
        redis.pcall('HSET', totals, 'enqueued:' .. name, by)
    end
end
redis.pcall('HINCRBY', minutes, format('%d:enqueued', now - now % 60000), n)
answer(letters())
return result
