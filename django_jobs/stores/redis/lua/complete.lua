-- complete: running → succeeded, in batches
--
-- ARGV  1 clock   2 channel   3 number
--       4 succeeded jobs kept   5 most jobs in the outbox, or ""   6 sum of run times   7 sum of waiting times (ms)
--       8 waiting and running times, for lib/times.lua
--       then per job: id, what, result ("run ms:JSON"); `what` has the lines token, flag, name, report ("" or a digest,
--       only with flag "+"), and of a job of a workflow: "-" or, if a later step needs its result, "r", and the
--       workflow.  The flag means:
--         "-"  there is nothing to free except the claim
--         "c"  two more arguments: digest of its lock or "", limit key or ""
--         "+"  read the record
--
-- Returns the ids whose claim is stale; these jobs are not changed.
--! use clock answers lines claim_end count times finish trim returned
local history, archiving = tonumber(ARGV[4]), tonumber(ARGV[5])
local FIRST = 9

local before = answered()
if before then
    return lines_of(before)
end

local known = {} -- what → {token with colon, flag, name}: a batch has few different values
local function read(what)
    local parts = known[what]
    if not parts then
        local token, flag, name, report, step = string.match(what, '^([%d:]+)\n(.)\n([^\n]*)\n?([^\n]*)\n?(.*)$')
        parts = {token .. ':', flag, name, report, step ~= '' and step}
        known[what] = parts
    end
    return parts
end

local ids, starts, whats, at = {}, {}, {}, FIRST
while at <= #ARGV do
    local what = read(ARGV[at + 1])
    ids[#ids + 1] = ARGV[at]
    starts[#ids] = at
    whats[#ids] = what
    at = at + (what[2] == 'c' and 5 or 3)
end
local claimed = redis.call('HMGET', claims, unpack(ids))

local at_now = string.format('%d', now) -- once: otherwise, Redis would convert the number for every job
local stale, done, places, values, by_name, unread, total = {}, {}, {}, {}, {}, {}, 0
local with_result = false
local slots_freed, keys_freed, digests, lockers = {}, {}, {}, {}

local steps = {} -- of each workflow: the lines of its note
local function note_success(step, id, result)
    local lines = steps[step]
    if not lines then
        lines = {}
        steps[step] = lines
    end
    if string.byte(step) == 114 then -- "r": with the result, in one line
        id = id .. '\t' .. string.gsub(string.match(result, '^[^:]*:(.*)$') or '', '\n', ' ')
    end
    lines[#lines + 1] = id
end

local ended = {} -- claim → how many of its jobs ended
local function succeed(id, claim, result, digest, key)
    done[#done + 1] = id
    ended[claim] = (ended[claim] or 0) + 1
    places[#places + 1] = at_now
    places[#places + 1] = id
    values[#values + 1] = id
    values[#values + 1] = result
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

for i, id in ipairs(ids) do
    local at, what = starts[i], whats[i]
    local claim, token = claimed[i], what[1]
    if claim and string.sub(claim, 1, #token) == token then
        if what[2] == '+' then
            unread[#unread + 1] = {id, claim, ARGV[at + 2], what[4], what[5]}
        elseif what[2] == 'c' then
            succeed(id, claim, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
        else
            succeed(id, claim, ARGV[at + 2])
        end
        if what[5] then
            note_success(what[5], id, ARGV[at + 2])
        end
        total = total + 1
        by_name[what[3]] = (by_name[what[3]] or 0) + 1
    else
        stale[#stale + 1] = id
        attempt_is_over(id, token)
    end
end

-- Of these jobs, only the few with a result to keep, or a lease of their own, are handled one by one.
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
            note_success((controls.noted_result and 'r' or '-') .. controls.workflow, id, result)
        end
        if (controls and controls.keep_result) or string.sub(claim, -#id - 1) == ':' .. id then
            slow[#slow + 1] = {id, claim, result, record, controls, unread[i][4]}
        else
            succeed(id, claim, result, lock_to_free(controls), limit_key(controls))
        end
    end
end
-- One command if nothing has to be reported: nothing is queued, no job has a check-in or was asked to stop, and nobody
-- waits for an end.
local quiet = redis.call('EXISTS', checkins, stops, waiters, queued, alone) == 0
if #done > 0 then
    redis.call('HDEL', claims, unpack(done)) -- first write: needs no memory
    note_ends(ended)
    if not quiet and redis.call('EXISTS', checkins, stops, waiters) > 0 then
        redis.call('HDEL', checkins, unpack(done))
        redis.call('HDEL', stops, unpack(done))
        for i, waited in ipairs(redis.pcall('HMGET', waiters, unpack(done))) do
            if waited then
                tell_end(done[i])
                values[2 * i] = stays(values[2 * i])
                with_result = true
            end
        end
    end
    redis.call('ZADD', succeeded, unpack(places))
    redis.call('HSET', results, unpack(values))
    if archiving then
        for i, record in ipairs(redis.call('HMGET', jobs, unpack(done))) do
            to_archive(archiving, 'succeeded', done[i], record, '')
        end
    end
end
free_slots(slots_freed, keys_freed)
if #digests > 0 then
    unlock_many(digests, lockers)
end
for _, entry in ipairs(slow) do
    local id, claim, result, record, controls = entry[1], entry[2], entry[3], entry[4], entry[5]
    end_claim(id, claim, controls, true)
    note_report(id, entry[6])
    if not quiet and tell_end(id) then
        result = stays(result)
    end
    redis.call('HSET', results, id, result)
    with_result = with_result or not returned_nothing(result)
    local keep = controls and tonumber(controls.keep_result)
    if keep then
        redis.call('ZADD', kept, now + keep, id)
        unlock(id, controls)
        if archiving then
            to_archive(archiving, 'succeeded', id, record, '')
        end
    else
        finish('succeeded', id, record, controls, archiving)
    end
end

if total > 0 then
    if not quiet then -- for jobs admitted above, workers were woken already
        tell_of_room()
    end
    if with_result then
        redis.call('SET', result_at, at_now)
    end
    local excess = redis.call('ZCARD', succeeded) - history
    local oldest = excess > 0 and too_many(excess) or {}
    if #oldest > 0 then
        local more = redis.call('EXISTS', tries, attempts, since, remembered) > 0
        local gone_at = more and redis.call('ZMSCORE', succeeded, unpack(oldest))
        local returned_none = young_without_result(oldest)
        if #returned_none > 0 then
            note_returned(returned_none)
        end
        redis.call('ZREM', succeeded, unpack(oldest))
        redis.call('HDEL', jobs, unpack(oldest))
        redis.call('HDEL', results, unpack(oldest))
        if more then
            redis.call('HDEL', tries, unpack(oldest))
            redis.call('HDEL', attempts, unpack(oldest))
            drop_since(unpack(oldest))
            remember_gone(oldest, 'succeeded', gone_at)
        end
    end
    for step, lines in pairs(steps) do
        note_steps(string.sub(step, 2), 'succeeded', lines)
    end
    for name, n in pairs(by_name) do
        count('succeeded:' .. name, n)
    end
    count_times(ARGV[8])
    count_minute('succeeded', total)
    for event, ms in pairs({run_ms = tonumber(ARGV[6]), wait_ms = tonumber(ARGV[7])}) do
        if ms ~= 0 then
            count_minute(event, ms)
        end
    end
    answer(table.concat(stale, '\n'))
end
return stale
