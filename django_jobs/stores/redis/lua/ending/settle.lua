-- settle: running → retry, scheduled, blocked, queued, dead or cancelled, in batches: how attempts end that did not succeed
--
-- ARGV  1 clock   2 channel   3 number   4 most jobs in the backlog, or ""   5 waiting and running times, for lib/ends/times.lua
--       then per job: id, what, text.  `what` has the lines kind, number, and then what owns_at_end expects.
--         kind           number            text
--         r = retry      delay (ms)        attempt (JSON), newline, signature of the error, newline, what is remembered of it
--         e = the same   delay (ms)        the length of a new record, ":", that record, then as "r"
--         m = the same   delay (ms)        as "e" ("0:" = the same record), with the length of the name of another
--                                          queue, ":" and that name before the attempt
--         s = snooze     delay (ms)        ""
--         p = the same   delay (ms)        "", of a job that has not begun, and can still expire
--         b = park       0                 digest of the names that this worker knows
--         q = refile     0                 the new record
--         d = bury       failures to add   the same
--         c = discard    0                 the same
-- Returns a letter for each job: its kind ("r" for "e", "s" for "p"); "c" if it would have waited again, but was asked to stop; "-" if the claim is
-- stale.
--
-- Either all jobs whose claims are held are settled, or the call fails and changes nothing: before the first job is taken
-- out, the type of each key that is needed is checked.
--! answers text
--! use log claim_end count times finish recent unknown failed meet locker errors
--! keys retry scheduled
local archiving = tonumber(ARGV[4])
local FIRST, WAITS, ENDS = 6, {r = true, s = true, b = true, q = true}, {d = 'dead', c = 'cancelled'}

-- The first of texts that are preceded by their lengths, and what follows it.
local function first_of(text)
    local size, first = string.match(text, '^(%d+):()')
    return string.sub(text, first, first + size - 1), string.sub(text, first + size)
end

local ids = {}
for at = FIRST, #ARGV, 3 do
    ids[#ids + 1] = ARGV[at]
end

-- Which claims are held: for each of these jobs its id, claim, kind, number, text and report, and its place in the answer.
local held, letters, over, known = {}, {}, {}, {}
local kinds = {} -- those of the batch
for i, claim in ipairs(redis.call('HMGET', claims, unpack(ids))) do
    local id, at = ids[i], FIRST + 3 * (i - 1)
    local kind, number, presented = string.match(ARGV[at + 1], '^(%l)\n(%d+)\n(.*)$')
    local token, report, overdue = parts_presented(presented)
    letters[i] = '-'
    if not is_claim_of(claim, token) then
        over[#over + 1] = {id, token}
    elseif not known[id] and not (overdue and is_extended(claim)) then
        local text, changed, goal = ARGV[at + 2], nil, nil
        if kind == 'e' or kind == 'm' then
            changed, text = first_of(text)
            if kind == 'm' then
                goal, text = first_of(text)
            end
            kind = 'r'
        end
        local begun = kind ~= 'p'
        kind = begun and kind or 's'
        known[id], kinds[kind] = true, true
        held[#held + 1] = {
            id = id, claim = claim, kind = kind, number = tonumber(number), text = text, report = report, at = i,
            changed = changed ~= '' and changed or nil, goal = goal, begun = begun,
        }
    end
end

local held_ids = {}
for i, job in ipairs(held) do
    held_ids[i] = job.id
end
local some = #held > 0
local records = some and redis.call('HMGET', jobs, unpack(held_ids)) or {}
local tried = some and redis.call('HMGET', tries, unpack(held_ids)) or {}
local logs = some and (kinds.r or kinds.d or kinds.c) and redis.call('HMGET', attempts, unpack(held_ids)) or {}
local asked = some and redis.call('EXISTS', stops) == 1 and redis.call('HMGET', stops, unpack(held_ids)) or {}
local reported = redis.call('EXISTS', checkins, stops) > 0

local limited, locking, relocking = false, false, false -- has any job a limit, or a lock; or may one take its lock again?
for i, job in ipairs(held) do
    job.record, job.tried = records[i] or '', tried[i]
    job.controls = controls_of(job.record)
    job.state = WAITS[job.kind] and asked[i] and 'c' or job.goal and 'm' or job.kind
    kinds[job.state] = true
    limited = limited or limit_key(job.controls)
    locking = locking or digest_of(job.controls)
    relocking = relocking or (WAITS[job.state] and digest_of(job.controls))
end
local lets_in = limited or (#over > 0 and reported) -- those may have been killed, and hold a slot still
for _, each in ipairs({
    {some, 'ZCARD', leases}, {some, 'HLEN', checkins}, {kinds.r, 'ZCARD', retry},
    {kinds.s, 'ZCARD', scheduled}, {kinds.d or relocking, 'ZCARD', dead}, {kinds.c or relocking, 'ZCARD', cancelled},
    {locking, 'HLEN', unique}, {relocking, 'ZCARD', succeeded}, {relocking, 'ZCARD', kept}, {relocking, 'ZCARD', expired},
    {kinds.b, 'HLEN', unknown}, {lets_in, 'ZCARD', slots}, {lets_in or kinds.b, 'ZCARD', blocked},
    {lets_in or kinds.b, 'HLEN', waits}, {lets_in or kinds.q, 'ZCARD', queued}, {lets_in or kinds.q, 'ZCARD', alone},
    {kinds.m, 'HLEN', end_calls}, {kinds.m, 'HLEN', remembered}, {kinds.m, 'ZCARD', remembered_at},
    {archiving and (kinds.c or kinds.d), 'LLEN', archive}, {archiving and (kinds.c or kinds.d), 'HLEN', results},
}) do
    if each[1] then
        meet(each[2], each[3])
    end
end
if broken then
    return broken
end

for _, each in ipairs(over) do
    attempt_is_over(each[1], each[2])
end
if not some then
    return reply(table.concat(letters))
end

-- -- what all ends have in common ---------------------------------------------

end_claims(held, reported)
for _, job in ipairs(held) do
    note_report(job.id, job.report)
end

-- -- what differs ---------------------------------------------------------------

local new_tries, new_logs, new_records, counts, by_minute = {}, {}, {}, {}, {}
local places = {r = {}, s = {}} -- state → times and ids
local ended = {d = {}, c = {}}
local entered = {} -- of the jobs to retry: entries of the index
local failures = {} -- attempts whose errors are remembered
local learnt, offers = {}, {}
local refiled -- the numbers in their lanes begin after this one

local function add_to(sums, event, n)
    sums[event] = (sums[event] or 0) + n
end

local function put(list, first, second)
    list[#list + 1] = first
    list[#list + 1] = second
end

-- Backwards, because each parked job goes before the one that was parked before it.
for i = #held, 1, -1 do
    local job = held[i]
    local id, kind, state, controls = job.id, job.kind, job.state, job.controls
    local tried = read_tries(job.tried)
    letters[job.at] = state
    if kind == 'r' or kind == 'd' then
        local add, name = kind == 'r' and 1 or job.number, type_of(job.record)
        tried.failures = tried.failures + add
        job.tried = text_of_tries(tried)
        if state ~= 'm' then
            put(new_tries, id, job.tried)
        end
        if add > 0 then
            add_to(counts, 'failed', add)
            add_to(counts, 'failed:' .. name, add)
            add_to(by_minute, 'failed', add)
        end
        if state == 'r' or state == 'm' then
            add_to(counts, 'retried', 1)
            add_to(counts, 'retried:' .. name, 1)
        end
    elseif state == 's' and job.begun and controls and controls.expires_at then -- it cannot expire any more
        put(new_tries, id, text_of_tries(tried))
    elseif state == 'c' and kind ~= 'c' then
        use_number(id)
    end
    if kind == 'r' or kind == 'd' or kind == 'c' then
        local attempt
        attempt, job.signature, job.note = parts_of_attempt(job.text)
        job.log = with_line(logs[i], signed(attempt))
        if state ~= 'm' then
            put(new_logs, id, job.log)
        end
        if kind ~= 'c' then
            failures[#failures + 1] = job
        end
    end
    if state == 'b' then
        local crashed = has_crashed(job.tried)
        local letter = crashed == 'suspect' and 'x' or (crashed or is_alone(controls)) and 'a' or 's'
        local name = name_of(job.record)
        if not learnt[job.text .. '\0' .. name] then
            learnt[job.text .. '\0' .. name] = true
            learn_unknown(job.text, name)
        end
        park(id, name, base_score(controls) - next_number(1), letter)
        offers[letter == 's' and offer or offer_alone] = true
    elseif state == 'q' then
        -- Before all others that wait, also before those that were handed back, in their order.
        refiled = refiled or next_number(#held) - #held - STEP / 2
        put(new_records, id, job.text)
        make_ready(id, controls_of(job.text), refiled + i, has_crashed(job.tried), now)
    elseif state == 'm' then
        leave_for(job.goal, job, enqueued_at(job.record) + number_of(tried) - 1, now + job.number)
    elseif ENDS[state] then
        table.insert(ended[state], job)
    else
        local when = now + job.number
        put(places[state], string.format('%.0f', when), id)
        if state == 'r' then
            if job.changed then
                put(new_records, id, job.changed)
                job.record, job.controls = job.changed, controls_of(job.changed)
                move_lock(id, controls, job.controls)
            end
            table.insert(entered, {id = id, at = when, record = job.record, signature = job.signature})
        end
    end
end
for key, values in pairs({[tries] = new_tries, [attempts] = new_logs, [jobs] = new_records}) do
    if #values > 0 then
        redis.call('HSET', key, unpack(values))
    end
end
for key, times in pairs({[retry] = places.r, [scheduled] = places.s}) do
    if #times > 0 then
        redis.call('ZADD', key, unpack(times))
    end
end
failed.enter_all('retry', entered)
for state, list in pairs(ended) do
    end_all(ENDS[state], list, archiving)
end
for _, job in ipairs(held) do
    if WAITS[job.state] then -- not one that has left for another queue
        waits_again(job.id, job.controls)
    end
end

for event, n in pairs(counts) do
    count(event, n)
end
for event, n in pairs(by_minute) do
    count_minute(event, n)
end
count_times(ARGV[5])
remember_errors(failures)

-- -- who learns of it -------------------------------------------------------------

if #places.r + #places.s > 0 then
    wake_up(wake)
    wake_up(wake_alone)
else
    tell_of_room()
end
for list in pairs(offers) do
    wake_up(list)
end
return reply(table.concat(letters), true)
