-- enqueue_plain: → queued, for jobs without a time or a schedule: most calls of enqueue_many().  It is kept short: the
-- script's own work costs more than its commands (every call creates each function of a library again).
--
-- ARGV  1 clock   2 channel   3 number   4 max length (0 = none)   5 ids are remembered for (ms)
--       6 fills ("1" = take the first jobs if there is no room for all, "" = all or none)
--       7 digest with which all these ids are remembered, "" = they are not   8 arguments of each job: 3 or 7
--       then per job: id, record up to the enqueue time, record after it ("" if the first part is the whole record),
--       and if there are 7: lane, priority, digest of its unique key, ms for which the key is locked (as in enqueue_one)
--
-- Returns one word per job, as values.Added.  If another job has a unique key, nothing changes, whatever `on_conflict` is.
--! answers lines
--! use record locker
--! keys jobs queued alone blocked seq totals minutes wake wake_alone remembered remembered_at
local call, match, sub, format = redis.call, string.match, string.sub, string.format
local max_length, STRIDE, FIRST = tonumber(ARGV[4]), tonumber(ARGV[8]), 9
local total = (#ARGV - FIRST + 1) / STRIDE
local room = math.huge
if max_length > 0 then
    room = max_length - call('ZCARD', queued) - call('ZCARD', alone) - call('ZCARD', blocked)
end
local most = ARGV[6] ~= '' and room or math.huge

local result, ids, digests, fields, names, by_name, any_digest = {}, {}, {}, {}, {}, {}, false
local time = format('%d', now)
for i = 1, total do
    local first = FIRST + STRIDE * (i - 1)
    ids[i], digests[i] = ARGV[first], STRIDE == 7 and ARGV[first + 5] or ''
    any_digest = any_digest or digests[i] ~= ''
end
local held = any_digest and call('HMGET', unique, unpack(digests)) or {}
local stored = call('HMGET', jobs, unpack(ids))
-- An id that was sent before as the caller's own (this is a late copy of that request), or that was taken away.
local known = call('EXISTS', remembered) == 1 and call('HMGET', remembered, unpack(ids)) or {}
local n, given, locked, refused, kept_out, locks, alone_too = 0, {}, {}, {}, {}, {}, false
for i = 1, total do
    local first = FIRST + STRIDE * (i - 1)
    local digest = digests[i] ~= '' and digests[i]
    local at = known[i] and not stored[i] and call('ZSCORE', remembered_at, ids[i])
    local holder = digest and not stored[i] and (locked[digest] or held[i] and locker(digest))
    if at and tonumber(at) + tonumber(ARGV[5]) > now then
        result[i] = sub(known[i], 1, 6) == 'moved:' and 'moved' or match(known[i], ':=(%a+)') or 'exists' -- answer_to()
        stored[i] = true
    elseif stored[i] then
        -- same bytes except for the time: this call was repeated; other bytes: the id exists
        local head, rest = ARGV[first + 1], ARGV[first + 2]
        local size = #head
        local same = (in_doubt or ARGV[7] == '') and (stored[i] == head -- as in seen()
            or (rest ~= '' and sub(stored[i], 1, size) == head and match(stored[i], '^%d+(.*)$', size + 1) == rest))
        result[i] = same and 'added' or 'exists'
    elseif holder then
        stored[i] = not locked[digest] -- there may be no room for the job of this call that is to have the key
        result[i] = 'duplicate'
        local list = stored[i] and refused or kept_out
        list[#list + 1] = {ids[i], ARGV[7] .. ':=duplicate>' .. holder}
    elseif n >= most then
        result[i] = 'full'
    else
        local record, rest = ARGV[first + 1], ARGV[first + 2]
        n = n + 1
        if digest then
            local ends = ARGV[first + 6] ~= '' and now + tonumber(ARGV[first + 6]) or 0 -- as in lock()
            locked[digest] = ids[i]
            locks[#locks + 1] = digest
            locks[#locks + 1] = format('%d:', ends) .. ids[i]
        end
        given[n], alone_too = first, alone_too or STRIDE == 7 and ARGV[first + 3] == 'alone'
        names[n] = type_of(record)
        if rest ~= '' then
            record = record .. time .. rest
        end
        fields[2 * n - 1], fields[2 * n] = ids[i], record
        result[i] = 'added'
    end
end
-- `some`: pairs of an id and the value with which it is remembered.
local function remember_all(some)
    if ARGV[7] == '' or #some == 0 then
        return
    end
    local values, times = {}, {}
    for i = 1, #some do
        values[2 * i - 1], values[2 * i] = some[i][1], some[i][2]
        times[2 * i - 1], times[2 * i] = time, some[i][1]
    end
    redis.pcall('HSET', remembered, unpack(values))
    redis.pcall('ZADD', remembered_at, unpack(times))
end

remember_all(refused)
if n == 0 then
    return reply(result)
end
if n > room then
    for i = 1, total do
        result[i] = stored[i] and result[i] or 'full'
    end
    return reply(result)
end

if alone_too then
    call('ZCARD', alone) -- an error does not undo earlier writes: see that it has the right type
end
call('HSET', jobs, unpack(fields)) -- first write: refused when Redis is full, before anything has changed
local last = redis.pcall('INCRBY', seq, n) -- as in next_number and make_ready
if type(last) == 'table' or last < n or last >= 2 ^ 44 then
    call('SET', seq, string.format('%.0f', now))
    last = call('INCRBY', seq, n)
end
local shared, apart, base = {}, {}, 100.5 * 2 ^ 45
for i = 1, n do
    local score, lane = base + last - n + i, shared
    if STRIDE == 7 then -- as in base_score
        score = score - math.max(-100, math.min(100, tonumber(ARGV[given[i] + 4]))) * 2 ^ 45
        lane = ARGV[given[i] + 3] == 'alone' and apart or shared
    end
    local at = #lane
    lane[at + 1], lane[at + 2] = format('%d', score), fields[2 * i - 1] -- cheaper than Redis' conversion
    by_name[names[i]] = (by_name[names[i]] or 0) + 1
end
for _, lane in ipairs({{queued, wake, shared}, {alone, wake_alone, apart}}) do
    if #lane[3] > 0 then
        call('ZADD', lane[1], unpack(lane[3]))
        wake_up(lane[2])
    end
end
if #locks > 0 then
    set_fields(unique, call('HLEN', unique), locks)
end
if ARGV[7] ~= '' then
    local new = {}
    for i = 1, n do
        new[i] = {fields[2 * i - 1], ARGV[7]}
    end
    remember_all(new)
    remember_all(kept_out)
end
for name, by in pairs(by_name) do
    if type(redis.pcall('HINCRBY', totals, 'enqueued:' .. name, by)) == 'table' then -- as in count()
        redis.pcall('HSET', totals, 'enqueued:' .. name, by)
    end
end
redis.pcall('HINCRBY', minutes, format('%d:enqueued', now - now % 60000), n)
return reply(result, true)
