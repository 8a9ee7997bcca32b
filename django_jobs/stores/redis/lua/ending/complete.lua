-- complete: running → succeeded, in batches
--
-- ARGV  1 clock   2 channel   3 number
--       4 succeeded jobs kept   5 most jobs in the backlog, or ""   6 sum of run times   7 sum of waiting times (ms)
--       8 waiting and running times, for lib/ends/times.lua
--       then per job: id, what, result ("run ms:JSON"); `what` has the lines token, flag, name, report ("" or a digest,
--       only with flag "+"), and of a job of a workflow: "-" or, if a later step needs its result, "r", and the
--       workflow, unless the id begins with it and a dot.  The flag means:
--         "-"  there is nothing to free except the claim
--         "c"  two more arguments: digest of its lock or "", limit key or ""
--         "+"  read the record
--
-- Returns the ids whose claim is stale; these jobs are not changed.
--
-- The short form ends jobs of flag "-" that are no steps, while nobody waits for an end and no job was asked to stop.
--! answers lines
--! use record holdings remembered since blocked count times trim returned
--! only full
--! use claim_end finish
--! end
--! keys jobs claims checkins stops waiters queued alone attempts tries
local history, archiving = tonumber(ARGV[4]), tonumber(ARGV[5])
local FIRST = 9

-- What is done for every job uses locals and counters: names of globals are looked up, and `#` searches for the end.
local argv, sub, byte = ARGV, string.sub, string.byte

local unusual = false -- only in the short form
local known = {} -- what → its parts: a batch has few different values
local function read(what)
    local token, flag, name, report, step = string.match(what, '^([%d:]+)\n(.)\n([^\n]*)\n?([^\n]*)\n?(.*)$')
    local parts = {
        token = token .. ':', flag = flag, name = name, report = report, step = step ~= '' and sub(step, 2),
        noted = byte(step) == 114, -- "r"; with the result
        size = flag == 'c' and 5 or 3, -- how many arguments such a job has
        n = 0, -- how many of them have ended
    }
    known[what] = parts
    unusual = unusual or flag ~= '-' or step ~= ''
    return parts
end

local ids, starts, whats, given, at, last = {}, {}, {}, 0, FIRST, #ARGV
while at <= last do
    local text = argv[at + 1]
    local what = known[text] or read(text)
    given = given + 1
    ids[given], starts[given], whats[given] = argv[at], at, what
    at = at + what.size
end
local claimed = redis.call('HMGET', claims, unpack(ids))

local at_now = string.format('%d', now) -- once: otherwise, Redis would convert the number for every job
local stale, done, places, values, unread, total = {}, {}, {}, {}, {}, 0
local with_result = false
local slots_freed, keys_freed, digests, lockers = {}, {}, {}, {}

--! only full
local steps = {} -- of each workflow: the lines of its note
local function note_success(workflow, noted, id, result)
    workflow = workflow == '' and string.match(id, '^[^.]*') or workflow
    local lines = steps[workflow]
    if not lines then
        lines = {}
        steps[workflow] = lines
    end
    if noted then -- in one line
        id = id .. '\t' .. string.gsub(string.match(result, '^[^:]*:(.*)$') or '', '\n', ' ')
    end
    lines[#lines + 1] = id
end
--! end

local ended = {} -- claim → how many of its jobs ended
local n = 0 -- how many are in `done`
local function succeed(id, claim, result, digest, key)
    n = n + 1
    local first, second = 2 * n - 1, 2 * n
    done[n], places[first], places[second], values[first], values[second] = id, at_now, id, id, result
    ended[claim] = (ended[claim] or 0) + 1
    with_result = with_result or not returned_nothing(result)
    if key and key ~= '' then
        slots_freed[#slots_freed + 1] = key .. '\0' .. id
        keys_freed[key] = (keys_freed[key] or 0) + 1
    end
    if digest and digest ~= '' then
        digests[#digests + 1] = digest
        lockers[#lockers + 1] = id
    end
end

for i = 1, given do
    local id, at, what, claim = ids[i], starts[i], whats[i], claimed[i]
    local token = what.token
    -- Jobs of one call were mostly claimed together.
    if claim and (claim == what.claim or sub(claim, 1, #token) == token) then
        what.claim = claim
        what.n = what.n + 1
        if what.flag == '+' then
            unread[#unread + 1] = {id, claim, argv[at + 2], what.report, what.step}
        elseif what.flag == 'c' then
            succeed(id, claim, argv[at + 2], argv[at + 3], argv[at + 4])
        else
            succeed(id, claim, argv[at + 2])
        end
        --! only full
        if what.step then
            note_success(what.step, what.noted, id, argv[at + 2])
        end
        --! end
        total = total + 1
    else
        stale[#stale + 1] = id
        --! only full
        attempt_is_over(id, token)
        --! end
    end
end

--! only full
-- Of these jobs, only the few with a result to keep, a lease of their own, or a job to enqueue are handled one by one.
local slow = {}
if #unread > 0 then
    local wanted = {}
    for i, entry in ipairs(unread) do
        wanted[i] = entry[1]
    end
    for i, record in ipairs(redis.call('HMGET', jobs, unpack(wanted))) do
        local id, claim, result = unread[i][1], unread[i][2], unread[i][3]
        local controls = controls_of(record)
        if not unread[i][5] and controls and type(controls.workflow) == 'string' then
            note_success(controls.workflow, controls.noted_result, id, result)
        end
        if (controls and (controls.keep_result or controls.on_end)) or string.sub(claim, -#id - 1) == ':' .. id then
            slow[#slow + 1] = {
                id = id, claim = claim, result = result, record = record, controls = controls, report = unread[i][4],
            }
        else
            succeed(id, claim, result, lock_to_free(controls), limit_key(controls))
        end
    end
end
--! end
-- One command if nothing has to be reported: nothing is queued, no job has a check-in or was asked to stop, and nobody
-- waits for an end.
local quiet = redis.call('EXISTS', checkins, stops, waiters, queued, alone) == 0
--[[ only short
if unusual or (not quiet and redis.call('EXISTS', waiters, stops) > 0) then
    return 'unusual'
end
--]]
if n > 0 then
    local reported = not quiet and redis.call('EXISTS', checkins, stops, waiters) > 0
    take_claims(done, ended, reported)
    --! only full
    if reported then
        for i, waited in ipairs(redis.pcall('HMGET', waiters, unpack(done))) do
            if waited then
                tell_end(done[i])
                values[2 * i] = stays(values[2 * i])
                with_result = true
            end
        end
    end
    --! end
    redis.call('HSET', results, unpack(values)) -- first: it tells repair.lua that these jobs have succeeded
    redis.call('ZADD', succeeded, unpack(places))
    --! only full
    if archiving then
        for i, record in ipairs(redis.call('HMGET', jobs, unpack(done))) do
            to_archive(archiving, 'succeeded', done[i], record, '')
        end
    end
    --! end
end
--! only full
if #slots_freed > 0 then
    free_slots(slots_freed, keys_freed)
end
if #digests > 0 then
    unlock_many(digests, lockers)
end
if #slow > 0 then
    end_claims(slow, true)
    for _, job in ipairs(slow) do
        note_report(job.id, job.report)
        if not quiet and tell_end(job.id) then
            job.result = stays(job.result)
        end
        redis.call('HSET', results, job.id, job.result)
        with_result = with_result or not returned_nothing(job.result)
    end
    end_all('succeeded', slow, archiving)
end
--! end

if total > 0 then
    if not quiet then -- for jobs admitted above, workers were woken already
        tell_of_room()
    end
    if with_result then
        redis.call('SET', result_at, at_now)
    end
    local excess = redis.call('ZCARD', succeeded) - history
    local oldest, from_first = {}, false
    if excess > 0 then
        oldest, from_first = too_many(excess)
    end
    if #oldest > 0 then
        local more = redis.call('EXISTS', tries, attempts, since, remembered) > 0
        local gone_at = more and redis.call('ZMSCORE', succeeded, unpack(oldest))
        local returned_none = young_without_result(oldest)
        if #returned_none > 0 then
            note_returned(returned_none)
        end
        if from_first then -- many times shorter in the append-only file and for replicas
            redis.call('ZREMRANGEBYRANK', succeeded, 0, #oldest - 1)
        else
            redis.call('ZREM', succeeded, unpack(oldest))
        end
        redis.call('HDEL', jobs, unpack(oldest))
        redis.call('HDEL', results, unpack(oldest))
        if more then
            redis.call('HDEL', tries, unpack(oldest))
            redis.call('HDEL', attempts, unpack(oldest))
            drop_since(unpack(oldest))
            remember_gone(oldest, 'succeeded', gone_at)
        end
    end
    --! only full
    note_steps('succeeded', steps)
    --! end
    local by_name = {}
    for _, what in pairs(known) do
        by_name[what.name] = (by_name[what.name] or 0) + what.n
    end
    for name, number in pairs(by_name) do
        if number > 0 then
            count('succeeded:' .. name, number)
        end
    end
    count_times(ARGV[8])
    count_minute('succeeded', total)
    for event, ms in pairs({run_ms = tonumber(ARGV[6]), wait_ms = tonumber(ARGV[7])}) do
        if ms ~= 0 then
            count_minute(event, ms)
        end
    end
end
return reply(stale, total > 0)
