-- enqueue: → queued or scheduled
--
-- ARGV  1 clock   2 channel   3 number
--       4 max length (0 = none)   5 ids are remembered for (ms)   6 fills (as in enqueue_plain)
--       then per job: id, record, run at (ms, 0 = now; "+ms" = in that time from now), on conflict,
--       schedule_run ("ms:schedule" or ""), expires ("" or ms after it could first run: expires_at in the record is 0,
--       and is replaced by that time), digest ("" = none), asked at (ms, "" = now: a call that comes late changes nothing
--       that a newer call has changed).  If the enqueue time in a record is 0, it is set to now.
--
-- Returns one word per job, as values.Added.
--! answers lines
--! use record count edited locker remembered log
--! keys fired
local max_length = tonumber(ARGV[4])
local kept = tonumber(ARGV[5])
local fills = ARGV[6] ~= ''
local STRIDE, FIRST = 8, 7
local total = (#ARGV - FIRST + 1) / STRIDE

local function time_of(text)
    return string.sub(text, 1, 1) == '+' and now + tonumber(string.sub(text, 2)) or tonumber(text)
end

local function with_expiry(record, at)
    local before, line, rest = string.match(record, '^([^\n]*\n[^\n]*\n[^\n]*\n)([^\n]*)(\n.*)$')
    return before and before .. string.gsub(line, '"expires_at":%d+', '"expires_at":' .. at, 1) .. rest or record
end

-- The record with `new` as the time in its fifth line, if that line matches the pattern `old`.
local function with_time(record, old, new)
    local head, rest = string.match(record, '^([^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n)' .. old .. '(\n.*)$')
    return head and head .. new .. rest or record
end

-- Same id, same bytes: this call was repeated.  Same id, other bytes: the id exists.  An id that is remembered may come
-- from another process, which was not told; only while the first request is in doubt, this may be its answer.
local function seen(stored, record, expires, digest_of_call)
    if digest_of_call ~= '' and not in_doubt then
        return 'exists'
    end
    stored = expires == '' and stored or with_expiry(stored, '0')
    return (stored == record or with_time(stored, '%d+', '0') == record) and 'added' or 'exists'
end

local function room_for(n)
    if max_length == 0 then
        return true
    end
    local waiting = redis.call('ZCARD', queued) + redis.call('ZCARD', alone) + redis.call('ZCARD', blocked)
    return waiting + n <= max_length
end

local by_name = {}
local function counted(record)
    local name = type_of(record)
    by_name[name] = (by_name[name] or 0) + 1
end

local function has_run(schedule_at, schedule)
    return schedule and (tonumber(redis.call('HGET', fired, schedule)) or 0) >= tonumber(schedule_at)
end

local function schedule_run_of(text)
    return string.match(text, '^(%d+):(.*)$')
end

-- With a limit, all or none: is there room for the jobs of this call that would be queued now?  A job that is not
-- added needs no room; neither does a second job with the same unique key in this call.
local function all_fit()
    if room_for(total) then
        return true
    end
    local n, ids, keys = 0, {}, {}
    for i = FIRST, #ARGV, STRIDE do
        local id, digest = ARGV[i], digest_of(controls_of(ARGV[i + 1]))
        local known = ids[id] or redis.call('HEXISTS', jobs, id) == 1 or has_run(schedule_run_of(ARGV[i + 4]))
            or is_remembered(id, kept)
        if not known and not (digest and (keys[digest] or locker(digest))) then
            ids[id] = true
            if digest then
                keys[digest] = true
            end
            if time_of(ARGV[i + 2]) <= now then
                n = n + 1
            end
        end
    end
    return room_for(n)
end
local fits = all_fit() or fills

local replaced = false
-- Another job has the unique key.  Returns the answer, which `noted` remembers before anything changes.
local function conflict(holder, record, run_at, policy, is_late, noted)
    if policy ~= 'replace' and policy ~= 'debounce' then
        return noted('duplicate')
    end
    local old = redis.call('HGET', jobs, holder)
    local state = old and waiting_state(holder)
    if not state or is_late and asked_at(record) < asked_at(old) then
        return noted('duplicate')
    end
    local moves = policy == 'debounce' and run_at > now
    local changed = with_arguments(old, record, moves)
    replaced = true
    noted('replaced')
    redis.call('HSET', jobs, holder, changed)
    limit_follows(holder, state, controls_of(old), controls_of(changed))
    if moves then
        leave_waiting(holder)
        redis.call('ZADD', scheduled, run_at, holder)
        note_expiry(holder, controls_of(changed))
        wake_up(wake)
        wake_up(wake_alone)
    end
    return 'replaced'
end

local function add(id, record, run_at, policy, schedule_run, expires, digest_of_call, asked)
    local stored = redis.call('HGET', jobs, id)
    if stored then
        return seen(stored, record, expires, digest_of_call)
    end
    record = with_time(record, '0', string.format('%.0f', now))
    if expires ~= '' then
        record = with_expiry(record, string.format('%.0f', math.max(run_at, now) + expires))
    end
    local entry = is_remembered(id, kept)
    if entry then
        return answer_to(entry)
    end
    local schedule_at, schedule = schedule_run_of(schedule_run)
    if has_run(schedule_at, schedule) then
        return 'fired'
    end
    local controls = controls_of(record)
    local digest = digest_of(controls)
    local holder = digest and locker(digest)
    local is_late = asked ~= ''
    if (holder or is_late) and (policy == 'replace' or policy == 'debounce') then
        record = with_asked_at(record, math.min(now, tonumber(asked) or now))
    end
    if holder then
        return conflict(holder, record, run_at, policy, is_late, function(answer)
            if digest_of_call ~= '' then
                remember(id, digest_of_call .. ':=' .. answer .. '>' .. holder)
            end
            return answer
        end)
    end
    if run_at <= now then
        fits = fits and (not fills or room_for(1)) -- no job overtakes one that found no room
        if not fits then
            return 'full'
        end
    end
    -- An error does not undo earlier writes: detect a place of another type before the record is written.
    local head
    if run_at > now then
        head = redis.call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
    elseif is_alone(controls) then -- other jobs may run twice if necessary
        redis.call('ZCARD', alone)
    end
    if digest_of_call ~= '' then
        remember(id, digest_of_call)
    end
    redis.call('HSET', jobs, id, record) -- first write, or after one of the same kind: refused when Redis is full
    note_expiry(id, controls)
    if digest then
        lock(id, controls)
    end
    if schedule then
        redis.call('HSET', fired, schedule, schedule_at)
    end
    if head then
        redis.call('ZADD', scheduled, run_at, id)
        if not head[2] or run_at < tonumber(head[2]) then -- waiting workers must wake up earlier
            wake_up(wake)
            wake_up(wake_alone)
        end
    else
        make_ready(id, controls)
    end
    counted(record)
    return 'added'
end

local result = {}
for i = FIRST, #ARGV, STRIDE do
    local at = i + 2
    result[#result + 1] = add(ARGV[i], ARGV[i + 1], time_of(ARGV[at]), unpack(ARGV, at + 1, at + 5))
end

local added = 0
for name, n in pairs(by_name) do
    count('enqueued:' .. name, n)
    added = added + n
end
if added > 0 then
    count_minute('enqueued', added)
end
return reply(result, added > 0 or replaced)
