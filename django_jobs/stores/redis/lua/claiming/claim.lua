-- claim: queued → running (and on the way: due → queued, over its limit → blocked, too late → expired)
--
-- Long because it is one transition: everything that a job may meet on its way to a worker.
--
-- The short form claims jobs of lane "shared" without controls that matter at the start, while nothing is paused, blocked
-- or due.  If no job has tries or waits, it returns {now, jobs left in the lane, ms until a job is due, token, id, record,
-- id, record, …}: tables cost the server more than what is in them.
--
-- ARGV  1 clock   2 channel   3 number
--       4 worker   5 limit   6 lease (ms)   7 lane, or "clear": alone without suspects; at-most-once jobs and jobs that
--         crashed come from there one by one
--       8 most running in the queue (0 = any)   9 "each": every job gets its own holder "worker:id"
--       10 most jobs in the backlog, or ""
--       11 only jobs that had arrived by this number of the queue, or ""
--       12 digest of the names that this worker knows, "" = jobs of any name   13 number of crashes at which a job is dead
--       14 a name a line: only jobs of these names, "" = any   15 rank in the lane from which they are looked for
--       16 id of the request, "" = none: the same request again gets the jobs of the first that are still held
--       17 limits of the job types that this worker knows, for lib/lanes/limits.lua
--
-- Returns {now, jobs left in the lane, ms until a job is due or a pause ends (-1 = neither), token,
--          {expired id, record, ms since when it could run (0 = see the record), …}, ids, records,
--          tries (empty if no job of the queue has any), result of others_wait, ms when they were claimed,
--          result of since_of (or empty), rank to continue at or -1}
--! answers own
--! use record ready next_due holdings meet since bytes as_table
--! only full
--! use count due blocked unique pauses finish log arrived unknown claimed chosen recent one_by_one limits
--! end
--! keys claims leases jobs tries expiries paused blocked unknown
--[[ only short
local is_last = false -- the jobs that `first_of` returned are the last of the lane
local function jobs_left()
    return is_last and 0 or redis.call('ZCARD', queued)
end

local function first_of(want)
    local found = redis.call('ZRANGE', queued, 0, want)
    is_last = #found <= want
    found[want + 1] = nil
    return found
end

if answered() then
    return 'unusual'
end
local first = first_of(tonumber(ARGV[5]))
if redis.call('EXISTS', paused, blocked, unknown, scheduled, retry, tries, since) == 0 then
    if #first == 0 and not in_doubt then
        return {now, 0, -1, 0}
    end
    heads[scheduled], heads[retry], met[tries] = {}, {}, 0
elseif redis.call('EXISTS', paused, blocked, unknown) > 0 or next_due() == 0 then
    return 'unusual'
end
--]]
local worker, limit, lease = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
--[[ only short
local lane, each, place, rank = 'shared', false, queued, -1
--]]
--! only full
local lane, max_running, each, archiving = ARGV[7], tonumber(ARGV[8]), ARGV[9] == 'each', tonumber(ARGV[10])
local up_to, knows = tonumber(ARGV[11]), ARGV[12]
local rank, request = ARGV[14] ~= '' and tonumber(ARGV[15]) or -1, ARGV[16]
local limits = ARGV[17]
local place, kind = lane == 'shared' and queued or alone, lane == 'shared' and 's' or 'a'
local lowest = lane == 'clear' and '0' or '-inf' -- suspects have scores below zero
if lane == 'shared' or each then
    separate = nil
end
--! end

local function tries_of(ids, size)
    return size > 0 and redis.call('HMGET', tries, unpack(ids)) or {}
end

local closed, closed_types, opens, opened = false, nil, -1, 0
local suspects = 0 -- how many stand before the jobs that `first_of` returned
--! only full
closed, closed_types, opens, opened = pauses()
local function jobs_left()
    if up_to then
        return count_arrived(place, up_to, lowest)
    end
    return lane == 'clear' and redis.call('ZCOUNT', place, lowest, '+inf') or redis.call('ZCARD', place)
end

local function first_of(want)
    suspects = lane == 'clear' and redis.call('ZCOUNT', place, '-inf', '(' .. lowest) or 0
    return redis.call('ZRANGE', place, suspects, suspects + want - 1)
end
--! end

-- ms until a job is due or a pause ends
local function next_look()
    local due = next_due()
    return opens >= 0 and (due < 0 or opens < due) and opens or due
end

--! only full
local function answer_of_closed(gone)
    return {now, 0, opens, 0, gone, {}, {}, {}, 0, 0, {}, -1}
end

do
    -- This call was made before: return the jobs of the first answer, as far as they are still held.
    local function again(text)
        local token, ids, gone, at = claimed_before(text)
        if #ids == 0 and closed then
            return answer_of_closed(gone)
        elseif #ids == 0 then
            return {now, jobs_left(), next_look(), 0, gone, {}, {}, {}, others_wait(knows, kind), 0, {}, -1}
        end
        local records = redis.call('HMGET', jobs, unpack(ids))
        local tried = tries_of(ids, redis.call('HLEN', tries))
        if each then -- the first answer may have been lost: the caller begins now
            for _, id in ipairs(ids) do
                redis.call('ZADD', leases, 'XX', 'GT', now + lease, worker .. ':' .. id)
            end
        end
        return {now, jobs_left(), next_look(), token, gone, ids, records, tried, 0, at, since_of(ids), -1}
    end
    local before = request ~= '' and find_recent('claim:' .. request) or answered()
    if before then
        return again(before)
    end
end

if closed then
    reply('')
    return answer_of_closed({})
end
--! end
-- An error does not undo earlier writes.  Therefore a needed key of another type must be detected before a job is
-- taken out: these two keys by the next two lines, keys that only some jobs need by look_ahead.
redis.call('ZREM', leases, '') -- first write: needs no memory
local running = redis.call('HLEN', claims)
--! only full
promote_due(100)
admit_resumed(closed_types, 200)
--! end
local room = math.huge -- free places in the whole queue
--! only full
if max_running > 0 then
    room = max_running - running - still_ending()
    limit = math.min(limit, room)
end
--! end
local others, hides, admitted = false, false, 0 -- about jobs whose names not every worker knows
--! only full
if knows ~= '' and redis.call('EXISTS', blocked, unknown) > 0 then
    hides = redis.call('HLEN', unknown) > 0
    others, admitted = admit_known(knows, kind, math.min(limit, 200))
end
--! end

local ids, records, held, expired_jobs = {}, {}, {}, {}
--! only full
local too_late = {}
local counted, given = {}, {} -- limit key → slots taken before this call; slots given in this call
local heads, turns = {}, {} -- limit key → score of the first job that is blocked; jobs let in that go before the batch
local raised = {} -- limit key → its limit, if that is higher than when one of the jobs was enqueued
local new_slots = {}
local crowd = 0 -- upper bound for the slots taken under any one limit key if the batch in hand runs
local digests, starters = {}, {} -- the locks that end when their job starts
local in_time = {} -- jobs that start before their time is over

local function running_under(key)
    counted[key] = counted[key] or slots_taken(key)
    return counted[key] + (given[key] or 0) + (turns[key] or 0)
end

-- A limit that could not be reached even if all jobs counted under one key needs no counting.
local function has_room(key, most)
    return most <= 0 or (most >= crowd and not turns[key]) or running_under(key) < most
end

-- Let in jobs that are blocked, as many as have room and `bound` allows (see fill).  Returns how many.
local function fill_up(key, most, bound)
    return fill(key, most > 0 and most - running_under(key) or 200, bound)
end

-- This job will not run now: the next job that waits for the same limit may run instead.
local function let_next(record, controls)
    local key = limit_key(controls)
    if key and has_room(key, most_of(limits, record, controls)) then
        admit(key, 1)
    end
end

-- May the job run now?  If it may, it takes its slot, and its lock is freed if the lock ends at the start.
local function starts(id, record, controls, score)
    if is_too_late(id, controls) then
        return false
    end
    local key = controls.limit_key
    if key then
        local most = most_of(limits, record, controls)
        if heads[key] and score and heads[key] < score then -- its limit was raised: those that were blocked go first
            heads[key], turns[key] = false, fill_up(key, most, 500)
        end
        if not has_room(key, most) then
            return false
        end
        given[key] = (given[key] or 0) + 1
        new_slots[#new_slots + 1] = '0'
        new_slots[#new_slots + 1] = key .. '\0' .. id
    end
    if controls.unique and lock_ends_at_start(controls) then
        digests[#digests + 1] = controls.unique
        starters[#starters + 1] = id
    end
    if controls.expires_at then
        in_time[#in_time + 1] = id
    end
    return true
end

-- The name under which the job's type is paused, nil if it is not.  A pause has the identity of the type; those of an older
-- version have the name in the record.
local function paused_as(record)
    local kind, name = type_of(record), name_of(record)
    return closed_types[kind] and kind or closed_types[name] and name or nil
end

-- The job does not run now: it is too late, of a paused type, unknown to this worker, or over its limit.
local function put_away(id, record, score)
    local controls, began = controls_of(record), 0
    if anything_noted then
        began = math.abs(tonumber(since_of({id})[1] or 0))
        drop_since(id)
    end
    if is_too_late(id, controls) then
        too_late[#too_late + 1] = {id = id, record = record, controls = controls}
        expired_jobs[#expired_jobs + 1] = id
        expired_jobs[#expired_jobs + 1] = record
        expired_jobs[#expired_jobs + 1] = string.format('%.0f', math.max(began, opened))
        let_next(record, controls)
        return
    end
    local letter = lane == 'shared' and 's' or score < 0 and 'x' or 'a'
    score = letter == 'x' and score + SUSPECT or score
    local closed_as = closed_types and paused_as(record)
    if closed_as then
        block(pause_key(closed_as), id, score, letter)
        let_next(record, controls)
    elseif hides and is_unknown(knows, name_of(record)) then
        others = true
        park(id, name_of(record), score, letter)
        let_next(record, controls)
    else
        block(limit_key(controls), id, score, letter)
    end
end

-- Check the keys that are needed to put jobs away, and to let in others in their place.
local function meet_places()
    for _, key in ipairs({slots, queued, alone, expired}) do
        meet('ZCARD', key)
    end
    meet('HLEN', waits)
    meet('HLEN', stops)
    if archiving then
        meet('LLEN', archive)
        meet('HLEN', results)
        meet('HLEN', attempts)
    end
end

-- Checks the types of the keys that these jobs will need.  Returns the controls of each job that matter at the start
-- (false if none do), and the jobs' scores, but only if one may have to be put away with its score: converting numbers
-- to text is expensive.
local function look_ahead(batch, found)
    local seen, wanted, away = {}, {}, closed_types ~= nil
    crowd, heads, turns = math.huge, {}, {}
    for i = 1, #batch do
        local controls = found[i] and controls_at_start(found[i])
        seen[i] = controls or false
        away = away or (hides and found[i] and is_unknown(knows, name_of(found[i])))
        if controls ~= false then
            meet('HLEN', unique)
        end
        if controls then
            local expires_at, key = tonumber(controls.expires_at), controls.limit_key
            away = away or (expires_at and expires_at <= now)
            if key then
                meet('ZCARD', slots)
                meet('ZCARD', blocked)
                if broken then
                    return seen, {}
                end
                crowd = met[slots] + #new_slots / 2 + #batch
                local most = most_of(limits, found[i], controls)
                wanted[key] = (wanted[key] or 0) + 1 -- also by jobs that this worker knows no limit of
                away = away or (most > 0 and most < crowd and running_under(key) + wanted[key] > most)
                if met[blocked] > 0 and has_room(key, most) then
                    if most <= 0 or most > (tonumber(controls.limit) or 0) then
                        raised[key] = most
                    end
                    if heads[key] == nil then
                        heads[key] = first_blocked(key) or false
                    end
                    away = away or heads[key]
                end
            end
        end
    end
    if away then
        meet_places()
    end
    return seen, away and not broken and redis.call('ZMSCORE', place, unpack(batch)) or {}
end
--! end

do
    local PASS_OVER = 500 -- jobs that may not run and are put away in one call: takes a few ms; the next call continues
    local looked_at, bytes = 0, 0
    while looked_at - #ids < PASS_OVER and bytes < MOST_BYTES do
        local want, ends_here, batch, found = limit - #ids, false, nil, nil
        --! only full
        want = math.min(want, separate and separate.at_once or limit)
        --! end
        if want <= 0 then
            break
        end
        --! only full
        if ARGV[14] ~= '' then
            batch, rank = chosen_from(place, ARGV[14], want, rank)
        elseif up_to then
            batch = first_arrived(place, up_to, want, lowest)
        end
        --! end
        --[[ only short
        batch, first = first, nil
        --]]
        batch = batch or first_of(want)
        if #batch == 0 then
            break
        end
        --[[ only short
        local standing = #batch
        --]]
        found, bytes = read_records(batch, bytes)
        --! only full
        ends_here = separate and separate.cut(batch, found, #ids)
        --! end
        if #batch == 0 then
            break
        end
        if not met[tries] then
            if redis.call('EXISTS', tries, since) == 0 then -- one command if no job has either
                met[tries] = 0
            else
                meet('HLEN', tries)
                anything_noted = true
            end
        end
        --! only full
        local seen, scores = look_ahead(batch, found)
        --! end
        --[[ only short
        is_last = is_last and #batch == standing
        for i = 1, #batch do
            broken = broken or (found[i] and has_terms(found[i]) and 'unusual')
        end
        --]]
        if broken then
            if looked_at == 0 then
                return broken
            end
            --[[ only short
            is_last = false
            --]]
            break -- the jobs so far run; the next call begins with the rest
        end
        looked_at = looked_at + #batch
        local scattered = false -- other jobs may stand between these
        --! only full
        scattered = ARGV[14] ~= '' or up_to
        --! end
        if scattered then
            redis.call('ZREM', place, unpack(batch))
        else -- many times shorter in the append-only file and for replicas
            redis.call('ZREMRANGEBYRANK', place, suspects, suspects + #batch - 1)
        end
        local n = #ids
        for i = 1, #batch do
            local id, record = batch[i], found[i]
            --! only full
            local controls = seen[i]
            --! end
            if not record then -- a dangling reference
            --! only full
            elseif (closed_types and paused_as(record)) or (hides and is_unknown(knows, name_of(record)))
                or (controls and not starts(id, record, controls, tonumber(scores[i]))) then
                put_away(id, record, tonumber(scores[i]))
            --! end
            else
                n = n + 1
                ids[n], records[n] = id, record
            end
        end
        if ends_here and #ids > 0 then
            break
        end
        --[[ only short
        if is_last then
            break
        end
        --]]
    end
end

--! only full
if #too_late > 0 then end_all('expired', too_late, archiving) end
for key, most in pairs(raised) do -- each end lets in one job: this fills what the higher limit has added
    if given[key] then
        fill_up(key, most, 1000) -- also if those above are claimed: the next claim meets these
    end
end
if #new_slots > 0 then redis.call('ZADD', slots, unpack(new_slots)) end
if #digests > 0 then unlock_many(digests, starters) end
if #in_time > 0 then redis.pcall('ZREM', expiries, unpack(in_time)) end
--! end
local left = jobs_left()
local token, tried, waits_began = 0, {}, {}
if #ids > 0 then
    waits_began = end_waits(ids, opened)
    tried = tries_of(ids, others and redis.call('HLEN', tries) or met[tries])
    token = next_number(1)
    local stamp = string.format('%d:%d:', token, now) .. worker
    for i = 1, #ids do
        local id = ids[i]
        held[2 * i - 1], held[2 * i] = id, stamp
        if each then
            held[2 * i] = stamp .. ':' .. id
            redis.call('ZADD', leases, now + lease, worker .. ':' .. id)
        end
    end
    set_fields(claims, running, held)
    --! only full
    if lane == 'alone' and not each then wait_to_begin(ids, tried, tonumber(ARGV[13])) end
    --! end
    if not each then
        redis.call('ZADD', leases, now + lease, worker)
        note_holding(worker, string.format('%d', token), #ids)
    end
end
if #ids > 0 or #expired_jobs > 0 then
    local told = #ids > 0 and {'+' .. table.concat(ids, '\n+')} or {}
    for i = 1, #expired_jobs, 3 do
        told[#told + 1] = '-' .. expired_jobs[i + 2] .. ':' .. expired_jobs[i]
    end
    local text = string.format('%.0f\n', token) .. table.concat(told, '\n')
    reply(text, true)
    --! only full
    if request ~= '' and #ids > 0 then -- one that found no jobs may go on looking under the same id
        note_recent('claim:' .. request, text)
    end
    --! end
else -- jobs were let in: if this call is repeated, it must not let in more
    reply('0\n', admitted > 0)
end
local look = next_look()
-- Other workers must learn of the jobs that are left (if the queue is at its limit, the end of a running job wakes
-- one), and of jobs that are due before their next check: by then, this worker may be busy, or dead.  3000 ms is longer
-- than a free worker waits between two checks (worker/child/fetcher.py: LOOK_ROUND).
if (left > 0 and #ids < room) or (#ids > 0 and look >= 0 and look < 3000) then
    wake_up(lane == 'shared' and wake or wake_alone)
end
local waiting = 0
--! only full
if others then make_offer(kind) end -- a worker that knows them may be busy now: the token waits for it
if opened > 0 and left == 0 and redis.call('EXISTS', queued, alone) == 0 then
    redis.call('HDEL', paused, '') -- no job is left that waited for the end of the pause
end
if #ids == 0 then
    waiting = others_wait(knows, kind)
end
--! end
--[[ only short
if #tried == 0 and #waits_began == 0 then
    local told = {now, left, look, token}
    for i = 1, #ids do
        told[2 * i + 3], told[2 * i + 4] = ids[i], records[i]
    end
    return told
end
--]]
return {
    now, left, look, token, expired_jobs, ids, records, tried, waiting, #ids > 0 and now or 0,
    waits_began, rank,
}
