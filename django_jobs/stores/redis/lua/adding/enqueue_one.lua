-- enqueue_one: → queued, for one job without a time or a schedule, in a queue without a limit.  Most calls of enqueue()
-- are this one: `enqueue_plain` takes 4 µs longer for one job, and `enqueue`, which can do everything, three times as
-- long.
--
-- ARGV  1 clock   2 channel   3 number   4 ids are remembered for (ms)
--       5 id   6 record up to the enqueue time   7 record after it ("" if the first part is the whole record)
--       8 digest with which the id is remembered, "" = it is not
--       of a job with controls: 9 lane   10 priority   11 digest of its unique key, "" = none
--       12 ms for which the key is locked, "" = as long as the job is covered
--
-- Returns the word of values.Added.  If another job has the unique key, nothing changes, whatever `on_conflict` is.
--
-- The short form adds a job without controls whose id is not remembered.
--! answers text
--! use record
--! only full
--! use locker
--! end
--! keys jobs queued alone seq totals minutes wake wake_alone remembered remembered_at
local call, match, sub, format = redis.call, string.match, string.sub, string.format
local id, record, rest, remember_as = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local place, list, score = queued, wake, 100.5 * 2 ^ 45 -- as in base_score, with priority 0
--! only full
local digest = ARGV[11] ~= '' and ARGV[11]
if ARGV[9] then
    score = score - math.max(-100, math.min(100, tonumber(ARGV[10]))) * 2 ^ 45
    if ARGV[9] == 'alone' then
        place, list = alone, wake_alone
    end
end
--! end

-- An id of this package is new unless the call was repeated.  So the record is read only if something was stored for
-- the id or its key, and else HSETNX finds it; for that, the error of a full Redis is good enough.
local stored = (in_doubt or remember_as ~= '') and call('HGET', jobs, id)
-- An id that was sent before as the caller's own (this is a late copy of that request), or that was taken away.
local entry = not stored and call('HGET', remembered, id)
--[[ only short
if entry then
    return 'unusual'
end
--]]
--! only full
if entry then
    local at = call('ZSCORE', remembered_at, id)
    stored = call('HGET', jobs, id)
    if not stored and at and tonumber(at) + tonumber(ARGV[4]) > now then
        return reply(sub(entry, 1, 6) == 'moved:' and 'moved' or match(entry, ':=(%a+)') or 'exists') -- as in answer_to()
    end
end
local holder = not stored and digest and locker(digest)
if holder then
    stored = call('HGET', jobs, id)
    if not stored then
        if remember_as ~= '' then
            call('HSET', remembered, id, remember_as .. ':=duplicate>' .. holder)
            call('ZADD', remembered_at, now, id)
        end
        return reply('duplicate')
    end
end
if place == alone then
    call('ZCARD', alone) -- an error does not undo earlier writes: see that it has the right type
end
--! end
-- First write: refused when Redis is full, before anything has changed.
if stored or call('HSETNX', jobs, id, rest == '' and record or record .. format('%d', now) .. rest) == 0 then
    -- same bytes except for the time: this call was repeated; other bytes: the id exists
    stored = stored or call('HGET', jobs, id)
    local size = #record
    local same = (in_doubt or remember_as == '') and (stored == record -- as in seen()
        or (rest ~= '' and sub(stored, 1, size) == record and match(stored, '^%d+(.*)$', size + 1) == rest))
    return reply(same and 'added' or 'exists')
end
--! only full
if remember_as ~= '' then
    redis.pcall('HSET', remembered, id, remember_as)
    redis.pcall('ZADD', remembered_at, now, id)
end
if digest then
    lock(id, {unique = digest, unique_mode = ARGV[12] ~= '' and 'period', unique_for = ARGV[12]})
end
--! end
local last = redis.pcall('INCR', seq) -- as in next_number and make_ready
if type(last) == 'table' or last < 1 or last >= 2 ^ 44 then
    call('SET', seq, format('%.0f', now))
    last = call('INCR', seq)
end
call('ZADD', place, format('%d', score + last), id) -- cheaper than Redis' conversion
if redis.pcall('LLEN', list) == 0 then -- as in wake_up
    call('RPUSH', list, '1')
end
local field = 'enqueued:' .. type_of(record)
if type(redis.pcall('HINCRBY', totals, field, '1')) == 'table' then -- as in count()
    redis.pcall('HSET', totals, field, 1)
end
redis.pcall('HINCRBY', minutes, format('%d:enqueued', now - now % 60000), '1')
return reply('added', true)
