-- settle: running → retry, scheduled, blocked, dead or cancelled, in batches: how attempts end that did not succeed
--
-- ARGV  1 clock   2 channel   3 number   4 most jobs in the outbox, or ""   5 waiting and running times, for lib/times.lua
--       then per job: id, what, text.  `what` has the lines kind, number, and then what owns_at_end expects.
--         kind           number            text
--         r = retry      delay (ms)        attempt (JSON), newline, signature of the error
--         s = snooze     delay (ms)        ""
--         b = park       0                 digest of the names that this worker knows
--         d = bury       failures to add   the same
--         c = discard    0                 the same
-- Returns a letter for each job: its kind; "c" if it would have waited again, but was asked to stop; "-" if the claim is
-- stale.
--
-- Either all jobs whose claims are held are settled, or the call fails and changes nothing: before the first job is taken
-- out, the type of each key that is needed is checked.
--! use clock answers log claim_end count times finish recent unknown failed meet
--! keys retry scheduled
local before = answered()
if before then
    return before
end
local archiving = tonumber(ARGV[4])
local FIRST, WAITS = 6, {r = true, s = true, b = true}

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
        known[id], kinds[kind] = true, true
        held[#held + 1] = {
            id = id, claim = claim, kind = kind, number = tonumber(number), text = ARGV[at + 2], report = report, at = i,
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

local freed, keys_freed, locking = {}, {}, false -- members of `slots`; limit key → how many; has any job a lock?
for i, job in ipairs(held) do
    job.record, job.tried = records[i] or '', tried[i]
    job.controls = controls_of(job.record)
    job.state = WAITS[job.kind] and asked[i] and 'c' or job.kind
    kinds[job.state] = true
    local key = limit_key(job.controls)
    if key then
        freed[#freed + 1] = key .. '\0' .. job.id
        keys_freed[key] = (keys_freed[key] or 0) + 1
    end
    locking = locking or digest_of(job.controls)
end
local lets_in = #freed > 0 or (#over > 0 and reported) -- those may have been killed, and hold a slot still
for _, each in ipairs({
    {some, 'ZCARD', leases}, {some, 'HLEN', checkins}, {some, 'HLEN', stops}, {kinds.r, 'ZCARD', retry},
    {kinds.s, 'ZCARD', scheduled}, {kinds.d, 'ZCARD', dead}, {kinds.c, 'ZCARD', cancelled}, {locking, 'HLEN', unique},
    {kinds.b, 'HLEN', unknown}, {lets_in, 'ZCARD', slots}, {lets_in or kinds.b, 'ZCARD', blocked},
    {lets_in or kinds.b, 'HLEN', waits}, {lets_in, 'ZCARD', queued}, {lets_in, 'ZCARD', alone},
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
    return table.concat(letters)
end

-- -- what all ends have in common ---------------------------------------------

redis.call('HDEL', claims, unpack(held_ids)) -- first write: needs no memory
if reported then
    redis.call('HDEL', checkins, unpack(held_ids))
    redis.call('HDEL', stops, unpack(held_ids))
end
local ended = {} -- claim → how many of its jobs ended
for _, job in ipairs(held) do
    local id = job.id
    job.holder = string.match(job.claim, '^[^:]*:[^:]*:(.*)$') or ''
    if string.sub(job.holder, -#id - 1) == ':' .. id then -- a holder of this job only
        redis.call('ZREM', leases, job.holder)
    else
        ended[job.claim] = (ended[job.claim] or 0) + 1
    end
    note_report(id, job.report)
end
note_ends(ended)
free_slots(freed, keys_freed)

-- -- what differs ---------------------------------------------------------------

local new_tries, new_logs, counts, by_minute = {}, {}, {}, {}
local places = {r = {}, s = {}, d = {}, c = {}} -- state → times and ids
local entered = {r = {}, d = {}} -- state → entries of the index
local learnt, offers = {}, {}

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
    local failures, crashes, parked, suspect = read_tries(job.tried)
    letters[job.at] = state
    if kind == 'r' or kind == 'd' then
        local add, name = kind == 'r' and 1 or job.number, name_of(job.record)
        put(new_tries, id, text_of_tries(failures + add, crashes, parked, suspect))
        if add > 0 then
            add_to(counts, 'failed', add)
            add_to(counts, 'failed:' .. name, add)
            add_to(by_minute, 'failed', add)
        end
        if state ~= 'c' then
            add_to(counts, kind == 'r' and 'retried' or 'dead', 1)
            add_to(counts, (kind == 'r' and 'retried:' or 'dead:') .. name, 1)
        end
        if kind == 'd' then
            add_to(by_minute, 'dead', 1)
        end
    elseif state == 's' and controls and controls.expires_at then -- only jobs that have not begun expire
        put(new_tries, id, text_of_tries(failures, crashes, parked, suspect))
    end
    local attempt, signature
    if kind == 'r' or kind == 'd' or kind == 'c' then
        attempt, signature = parts_of_attempt(job.text)
        put(new_logs, id, with_line(logs[i], signed(attempt)))
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
    else
        local when = (state == 'r' or state == 's') and now + job.number or now
        put(places[state], string.format('%.0f', when), id)
        if entered[state] then
            table.insert(entered[state], {id = id, at = when, record = job.record, signature = signature})
        end
    end
    if state == 'c' then
        add_to(counts, 'cancelled', 1)
    end
end
for key, values in pairs({[tries] = new_tries, [attempts] = new_logs}) do
    if #values > 0 then
        redis.call('HSET', key, unpack(values))
    end
end
local STATES = {r = retry, s = scheduled, d = dead, c = cancelled}
for state, members_of in pairs(places) do
    if #members_of > 0 then
        redis.call('ZADD', STATES[state], unpack(members_of))
    end
end

local waited_for = redis.call('EXISTS', waiters) == 1
local steps = {d = {}, c = {}} -- state → workflow → the lines of its note
for i = #held, 1, -1 do
    local job = held[i]
    local id, state, controls = job.id, job.state, job.controls
    if WAITS[state] then
        relock(id, controls)
    else
        unlock(id, controls)
        if archiving then
            to_archive(archiving, state == 'd' and 'dead' or 'cancelled', id, job.record, job.holder)
        end
        if waited_for then
            tell_end(id)
        end
        if controls and type(controls.workflow) == 'string' then
            local lines = steps[state][controls.workflow] or {}
            steps[state][controls.workflow] = lines
            lines[#lines + 1] = id
        end
    end
end
for state, workflows in pairs(steps) do
    for workflow, lines in pairs(workflows) do
        note_steps(workflow, state == 'd' and 'dead' or 'cancelled', lines)
    end
end
failed.enter_all('retry', entered.r)
failed.enter_all('dead', entered.d)

for event, n in pairs(counts) do
    count(event, n)
end
for event, n in pairs(by_minute) do
    count_minute(event, n)
end
count_times(ARGV[5])

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
local text = table.concat(letters)
answer(text)
return text
