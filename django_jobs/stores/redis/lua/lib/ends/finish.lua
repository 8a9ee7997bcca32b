-- → succeeded, dead, cancelled or expired: what every end of a job does, whatever ends it.
--! on demand
--! keys jobs succeeded kept dead cancelled expired expiries results attempts tries archive waiters ends stops end_calls seq
--! use record unique remembered since count notes log failed endings

local PLACES = {succeeded = succeeded, dead = dead, cancelled = cancelled, expired = expired}

local function netstrings(fields)
    for i, field in ipairs(fields) do
        fields[i] = #field .. ':' .. field
    end
    return table.concat(fields)
end

-- A finished job with all that is known of it, as netstrings: state, id, at, worker, tries, result, attempts, record.
local function all_of(state, id, record, worker)
    return netstrings({
        state, id, string.format('%.0f', now), worker or '', redis.call('HGET', tries, id) or '',
        redis.call('HGET', results, id) or '', redis.call('HGET', attempts, id) or '', record or '',
    })
end

-- For the archiver.  `most`: so many jobs the archive's backlog may have.  If it is full, this job is left out, and counted.
local function to_archive(most, state, id, record, worker)
    if redis.call('RPUSH', archive, all_of(state, id, record, worker)) > most then
        redis.call('RPOP', archive)
        count('not_archived', 1)
    end
end

-- The job has ended, or was deleted before its end ("deleted"): what is to be enqueued because of that, until it is in the
-- store (workflows/end_calls.py).  The number makes each end another one.  Each of the two jobs has an entry of its own:
-- one may have to wait for longer than the id of the other is remembered.  A key of another type must not keep a job from
-- ending.
local function note_calls(state, id, record, controls, worker)
    local on_dead = state == 'dead' and controls and controls.on_dead
    if not (on_dead or (controls and controls.on_end)) then
        return
    end
    local number = redis.pcall('INCRBY', seq, 1)
    local head = string.format('%.0f:', type(number) == 'table' and now or number)
    local known = all_of(state == 'deleted' and 'cancelled' or state, id, record, worker)
    if controls.on_end then
        redis.pcall('HSET', end_calls, head .. state .. ':' .. id, known)
    end
    if on_dead and on_dead ~= controls.on_end then
        redis.pcall('HSET', end_calls, head .. 'on_dead:' .. id, known)
    end
end

-- The job has ended, or was deleted: tell those who wait for its end.  `waiters` has the ids, and the ends are written to the
-- stream `ends`, which all processes with waiting callers read.  A key of another type must not keep a job from ending:
-- callers also check by themselves soon.  Returns whether its end was waited for.
local function tell_end(id)
    local MOST_TOLD, TOLD_FOR = 10000, 60000 -- entries; ms
    if redis.pcall('HDEL', waiters, id) ~= 1 then
        return false
    end
    redis.pcall('XADD', ends, 'MAXLEN', '~', MOST_TOLD, '*', 'id', id)
    redis.pcall('PEXPIRE', ends, TOLD_FOR)
    return true
end

-- The job, whose claim has ended, is retried in another queue: → that queue (adding/arrive.lua).  Until it is there, all
-- that is known of it is in an entry as that of `note_calls`, whose state is "moved": as in all_of, then the queue, the
-- signature of the error, the digest with which its id is remembered, until when it has its unique key for a period (ms),
-- and the last number of this queue.  `number`: of the move.  It grows with each move of the job, and is greater for a
-- later job with its id, which the other queue must not take for this one.  This queue remembers where the job went,
-- so that nobody enqueues its id here, and whoever knows the job by this queue finds it.  It does so for an hour more than
-- for other ids, because the other server may be away, and counts from `due`.  Workflows enqueue steps again that have
-- begun: see also void.lua.
local function leave_for(goal, job, number, due)
    local HOUR, id = 3600000, job.id
    local longer = job.controls and job.controls.workflow and 720 * HOUR or HOUR
    local holder, ends = nil, 0
    if digest_of(job.controls) then
        holder, ends = lock_holder(job.controls.unique)
    end
    local digest = string.match(redis.call('HGET', remembered, id) or '', '^[^:]*')
    redis.call('HSET', end_calls, string.format('%.0f:moved:', number) .. id, netstrings({
        'retry', id, string.format('%.0f', due), '', job.tried, '', job.log, job.changed or job.record, goal,
        job.signature or '', digest, string.format('%.0f', holder == id and ends or 0),
        string.format('%.0f', tonumber(redis.pcall('GET', seq)) or 0),
    }))
    remember(id, string.format('%s:>%.0f>', digest, number) .. goal, string.format('%.0f', due + longer))
    for _, key in ipairs({jobs, attempts, tries}) do
        redis.call('HDEL', key, id)
    end
    drop_since(id)
    redis.pcall('ZREM', expiries, id)
    unlock(id, job.controls)
    tell_end(id)
end

local function count_ends(state, list)
    if state == 'succeeded' then -- `complete` counts successes, and notes them, together with those it ends itself
        return
    end
    count(state, #list)
    if state == 'dead' then
        local by_name = {}
        for _, job in ipairs(list) do
            local name = type_of(job.record or '')
            by_name[name] = (by_name[name] or 0) + 1
        end
        for name, n in pairs(by_name) do
            count('dead:' .. name, n)
        end
        count_minute('dead', #list)
    end
end

-- End these jobs, which have left the place where they were, and their claims.  Each has `id`, `record`, `controls`; if it
-- ran, `holder`; if it is dead, `signature`.  `archiving`: see to_archive; nil = there is no archive.
local function end_all(state, list, archiving)
    if #list == 0 then
        return
    end
    local places, keeps, digests, lockers, steps, entered, timed = {}, {}, {}, {}, {}, {}, {}
    local marked = redis.call('EXISTS', waiters, stops) > 0
    for _, job in ipairs(list) do
        local id, controls = job.id, job.controls
        local keep = state == 'succeeded' and controls and tonumber(controls.keep_result)
        local times = keep and keeps or places
        times[#times + 1] = string.format('%.0f', now + (keep or 0))
        times[#times + 1] = id
        local goes_on = marked and is_ending(id) -- then, let_go does the rest
        if lock_to_free(controls) and not (goes_on and ends_with(id, controls.unique)) then
            digests[#digests + 1] = controls.unique
            lockers[#lockers + 1] = id
        end
        if archiving then
            to_archive(archiving, state, id, job.record, job.holder)
        end
        note_calls(state, id, job.record, controls, job.holder)
        if controls and controls.expires_at then
            timed[#timed + 1] = id
        end
        if marked then
            tell_end(id)
        end
        if not goes_on and state ~= 'succeeded' and controls and type(controls.workflow) == 'string' then
            steps[controls.workflow] = steps[controls.workflow] or {}
            table.insert(steps[controls.workflow], id)
        end
        entered[#entered + 1] = {id = id, at = now, record = job.record or '', signature = job.signature}
    end
    for place, times in pairs({[PLACES[state]] = places, [kept] = keeps}) do
        if #times > 0 then
            redis.call('ZADD', place, unpack(times))
        end
    end
    if #digests > 0 then
        unlock_many(digests, lockers)
    end
    if #timed > 0 then
        redis.pcall('ZREM', expiries, unpack(timed))
    end
    note_steps(state, steps)
    if state == 'dead' then
        failed.enter_all('dead', entered)
    end
    count_ends(state, list)
end

local function finish(state, id, record, controls, archiving, holder)
    end_all(state, {{id = id, record = record, controls = controls, holder = holder}}, archiving)
end

-- → dead, with the attempt that says why.
local function bury(id, record, controls, attempt, signature, archiving, holder)
    log_attempt(id, attempt)
    local job = {id = id, record = record, controls = controls, holder = holder, signature = signature}
    end_all('dead', {job}, archiving)
end

-- Delete finished jobs; `ended[i]` is when they ended (ms).
local function forget(ids, state, ended)
    for _, key in ipairs({jobs, results, attempts, tries}) do
        redis.call('HDEL', key, unpack(ids))
    end
    drop_since(unpack(ids))
    remember_gone(ids, state, ended)
end
