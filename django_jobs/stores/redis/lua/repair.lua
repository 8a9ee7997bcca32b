-- repair: repair what no transition should leave behind, or only report it.  This script checks each entry again, so
-- that an entry that has moved since the survey is left alone.
--
-- ARGV  1 clock   2 kind   3 lease for a claim that has none (ms)   4 attempt (JSON) of a job that goes to dead
--       5 most jobs in the outbox, or ""
--       6 "look": change nothing   then the entries to check; for each kind:
--       "claims": ids   "leases": holders   "jobs": ids   "places": ids   "locks": digests   "slots": members
--       "waiters": members   "failed": ids in `dead` or `retry`   "chunks", "groups", "tags": names in the index of
--       failed jobs
-- Returns {entries that were repaired, or would be; id, record of each job that went to dead}
--! use clock places bury pauses endings holdings bytes
--! keys leases checkins
local kind, grace, attempt, archiving, looking = ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5]), ARGV[6] == 'look'
local repaired, died, bytes = {}, {}, 0

-- A write; in a dry run, report that there would have been one.
local function write(...)
    return looking or redis.call(...)
end

-- Was the id in any place?  Not if a finished job was deleted between the survey and this call.
local function drop_everywhere(id)
    if looking then
        return waiting_state(id) or ended_state(id) or redis.call('HEXISTS', claims, id) == 1
    end
    local place = leave_waiting(id) or leave_ended(id)
    local claim = redis.call('HGET', claims, id)
    if claim then
        redis.call('HDEL', claims, id)
        note_end(id, claim)
    end
    return claim or place ~= nil
end

-- Remove the job from these places; if `stays`, keep it in the first one where it is.
local function thin_out(places, id, stays)
    local surplus = false
    for _, place in ipairs(places) do
        if redis.call('ZSCORE', place[2], id) then
            if not stays then
                local at = redis.call('ZSCORE', place[2], id)
                write('ZREM', place[2], id)
                if not looking and (place[1] == 'dead' or place[1] == 'retry') then
                    failed.leave(place[1], id, at)
                end
                surplus = true
            end
            stays = false
        end
    end
    return surplus
end

-- A job that is in no place was accepted, so it is queued; if it may have run and must not run twice, it is dead.
local function find_a_place(id, record)
    local controls = controls_of(record)
    redis.call('HDEL', checkins, id)
    if controls and controls.at_most_once then
        bury(id, record, controls, attempt, archiving)
        died[#died + 1] = id
        died[#died + 1] = record
        bytes = bytes + #record
    else
        make_ready(id, controls, nil, has_crashed(redis.call('HGET', tries, id)), now)
    end
end

-- Are these the lines of a part of the index, in their order?  A pattern that may begin anywhere would take a time that
-- grows with the square of a long text: foreign bytes would stop the server for minutes.
local function is_sound(text)
    local last, at = nil, 1
    while at <= #text do
        local ends = string.find(text, '\n', at, true)
        local line = ends and string.sub(text, at, ends - 1)
        if not line or not string.find(line, '^%d%d%d%d%d%d%d%d%d%d%d%d%d.') or (last and not failed.comes_before(last, line)) then
            return false
        end
        last, at = line, ends + 1
    end
    return true
end

local known_fields

-- The key and the field of the group of each number: of `groups` or `tags`.
local function group_fields()
    if not known_fields then
        known_fields = {}
        for _, key in ipairs({groups, tags}) do
            local flat = redis.call('HGETALL', key)
            for i = 1, #flat, 2 do
                local number = failed.read_group(flat[i + 1])
                if number and not known_fields[number] then
                    known_fields[number] = {key, flat[i]}
                end
            end
        end
    end
    return known_fields
end

-- The number of jobs of a group.
local function mend_group(key, field)
    local number, jobs_in, first, last = failed.read_group(redis.call('HGET', key, field))
    local known = number and group_fields()[number]
    if not number or not string.find(field, '^[dr]') or known[1] ~= key or known[2] ~= field then
        write('HDEL', key, field)
        return true
    end
    local found, chunk = 0, number
    repeat
        chunk = failed.chunk_after(number, chunk)
        found = found + (chunk and select(2, string.gsub(redis.call('HGET', members, chunk) or '', '\n', '')) or 0)
    until not chunk
    if found ~= jobs_in then
        if not looking then
            failed.write_group(key, field, number, found, first, last)
        end
        return true
    end
end

local repairs = {
    -- a claim whose worker has no lease: give it one; if nobody renews it, recover takes the claim
    claims = function(id)
        local claim = redis.call('HGET', claims, id)
        local holder = claim and (string.match(claim, '^[^:]*:[^:]*:(.*)$') or '')
        if holder and not redis.call('ZSCORE', leases, holder) then
            write('ZADD', leases, now + grace, holder)
            return true
        end
    end,
    -- an expired lease whose holder has no claim (a holder with claims is recovered first)
    leases = function(holder)
        local ends = tonumber(redis.call('ZSCORE', leases, holder) or '')
        -- as in serialization/holders.py
        local id = string.match(holder, '^remote:%??@[^:]*:(.*)$') or string.match(holder, '^remote:%?:(.*)$')
            or string.match(holder, '^remote:(.*)$')
        local claim = id and redis.call('HGET', claims, id)
        if ends and ends <= now and not (claim and string.sub(claim, -#holder) == holder) then
            write('ZREM', leases, holder)
            if not looking then
                holders_are_gone({[holder] = true})
                redis.pcall('HDEL', holdings, holder)
            end
            return true
        end
    end,
    -- a job in no place, or in several: it stays in the place where a second run is least likely
    jobs = function(id)
        local record = redis.call('HGET', jobs, id)
        if not record then
            return false
        end
        local running, ended, waiting = redis.call('HEXISTS', claims, id) == 1, ended_state(id), waiting_state(id)
        if not running and not ended and not waiting then
            if not looking then
                find_a_place(id, record)
            end
            return true
        end
        local surplus = thin_out(ENDED, id, not running)
        surplus = thin_out(WAITING, id, not running and not ended) or surplus
        if waiting ~= 'blocked' or running or ended then
            if looking then
                surplus = redis.call('HEXISTS', waits, id) == 1 or surplus
            else
                surplus = unblock(id) or surplus
            end
        end
        return surplus
    end,
    -- a place or a claim without a job: there is nothing to run; or a blocked job in `waits` that is not in `blocked`
    places = function(id)
        local member = redis.call('HGET', waits, id)
        if member and not redis.call('ZSCORE', blocked, member) then
            local claimed = redis.call('HEXISTS', claims, id) == 1
            if not claimed and waiting_state(id) == 'blocked' and not ended_state(id) and parts_of(member) == id then
                write('ZADD', blocked, 0, member)
            else
                write('HDEL', waits, id)
            end
            return true
        end
        if redis.call('HEXISTS', jobs, id) == 0 then
            return drop_everywhere(id)
        end
    end,
    -- a unique period that is over is not a fault: it is removed, but not reported
    locks = function(digest)
        local holder, ends = lock_holder(digest)
        local over = ends > 0 and ends <= now and not looking
        local left = ends == 0 and holder and (redis.call('HEXISTS', jobs, holder) == 0 or ended_state(holder))
        if over or left then
            write('HDEL', unique, digest)
            return true
        end
    end,
    slots = function(member)
        local id = string.match(member, '%z(.*)$')
        local held = id and (redis.call('HEXISTS', claims, id) == 1 or killed_attempt(redis.call('HGET', stops, id)))
        if not held then
            return write('ZREM', slots, member) ~= 0
        end
    end,
    -- an entry of `blocked` that is not in `waits`; and if its limit has a free slot after all, jobs are let in
    waiters = function(member)
        local id, _, _, key = parts_of(member)
        if not redis.call('ZSCORE', blocked, member) then
            return false
        end
        if not id then
            write('ZREM', blocked, member)
            return true
        end
        local known = redis.call('HGET', waits, id)
        local unknown = known ~= member
        if unknown and known and redis.call('ZSCORE', blocked, known) then
            write('ZREM', blocked, member)
            return true
        elseif unknown then
            write('HSET', waits, id, member)
        end
        if looking or string.match(key, '^[\2\4]') then
            return unknown -- it waits for a pause to end, or has an unknown name: claims and promote take it back
        end
        if key == ending_key(id) then
            return not is_ending(id) and admit(key, 1) > 0 or unknown
        end
        local controls = controls_of(redis.call('HGET', jobs, id))
        local most = controls and tonumber(controls.limit) or 0
        local free = most > 0 and most - slots_taken(key) or 1000
        return free > 0 and admit(key, free) > 0 or unknown
    end,
    -- a job that is dead or waits for a retry and is not in the index: a version that has none moved it
    ['failed'] = function(id) -- a name in brackets: `failed` is a library
        local missing = false
        for state, place in pairs({dead = dead, retry = retry}) do
            local at = redis.call('ZSCORE', place, id)
            if at and redis.call('HEXISTS', jobs, id) == 1 then
                local in_errors, in_tags = failed.has(state, id, at)
                missing = missing or not (in_errors and in_tags)
                if not in_errors and not looking then
                    failed.enter(state, id, at)
                elseif not in_tags and not looking then
                    failed.enter_by_tags(state, id, at)
                end
            end
        end
        return missing
    end,
    -- a part of the index: jobs that have left, or nothing but remains
    chunks = function(chunk)
        local number = string.match(chunk, '^(%d%d%d%d%d):')
        local field = number and group_fields()[number]
        local text = redis.call('HGET', members, chunk)
        if not text or not field or not redis.call('ZSCORE', chunks, chunk) or not is_sound(text) then
            write('ZREM', chunks, chunk)
            write('HDEL', members, chunk)
            return true
        end
        local key, name = field[1], field[2]
        local place, gone = string.sub(name, 1, 1) == 'd' and dead or retry, 0
        for line in string.gmatch(text, '[^\n]+') do
            local at = redis.call('ZSCORE', place, string.sub(line, 14))
            if not at or failed.position_of(tonumber(at), string.sub(line, 14)) ~= line then
                gone = gone + 1
                if not looking then
                    failed.remove_line(number, line)
                end
            end
        end
        if gone > 0 and not looking then
            local _, jobs_in, first, last = failed.read_group(redis.call('HGET', key, name))
            failed.write_group(key, name, number, math.max(0, jobs_in - gone), first, last)
        end
        return gone > 0
    end,
    ['groups'] = function(field)
        return field ~= '' and mend_group(groups, field)
    end,
    ['tags'] = function(field)
        return mend_group(tags, field)
    end,
}

write('ZREM', leases, '') -- first write: needs no memory
for i = 7, #ARGV do
    if bytes >= MOST_BYTES then -- bytes of jobs that went to dead; the next call handles what is left
        break
    end
    if repairs[kind](ARGV[i]) then
        repaired[#repaired + 1] = ARGV[i]
    end
end
return {repaired, died}
