-- repair: repair what no transition should leave behind, or only report it.  This script checks each entry again, so
-- that an entry that has moved since the survey is left alone.
--
-- Arguments: kind, grace (lease for a claim that has none, ms), text (attempt of a job that goes to dead: JSON, newline,
--       signature), archiving (most jobs in the backlog, or ""), how ("look": change nothing), then the entries to check;
--       for each kind:
--       "claims": ids   "leases": holders   "jobs": ids   "places": ids   "locks": digests   "slots": members
--       "waiters": members   "failed": of jobs in `dead` or `retry` when they failed (ms), a colon, the length of the
--       signature of the error, a colon, the signature, id; with "look", ids   "failures", "grouped", "error_groups",
--       "tag_groups": members or fields of the index of failed jobs
-- Returns {entries that were repaired, or would be; id, record of each job that went to dead}
--! answers again
--! args kind grace:int text archiving:int how limits
--! use limits places finish log pauses endings locker holdings bytes
--! keys leases checkins
local looking = how == 'look'
local attempt, signature = parts_of_attempt(text)
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
                    failed.leave(id, at)
                end
                surplus = true
            end
            stays = false
        end
    end
    return surplus
end

-- A job that is in no place was accepted, so it is queued; if it may have run and must not run twice, it is dead.  If it
-- has a result, it has succeeded: it must not run again.
local function find_a_place(id, record)
    local controls = controls_of(record)
    redis.call('HDEL', checkins, id)
    if redis.call('HEXISTS', results, id) == 1 then
        redis.call('ZADD', succeeded, string.format('%.0f', now), id)
    elseif controls and controls.at_most_once then
        bury(id, record, controls, attempt, signature, archiving)
        died[#died + 1] = id
        died[#died + 1] = record
        bytes = bytes + #record
    else
        wait_again(id, controls, nil, has_crashed(redis.call('HGET', tries, id)))
    end
end

local known_groups

-- Has this name of a group a field?
local function is_known(group)
    if not known_groups then
        known_groups = {}
        for _, key in ipairs({error_groups, tag_groups}) do
            local flat = redis.call('HGETALL', key)
            for i = 1, #flat, 2 do
                known_groups[failed.read_group(flat[i], flat[i + 1]) or ''] = true
            end
        end
    end
    return known_groups[group]
end

local PLACE_OF = {d = dead, D = dead, r = retry, R = retry}

-- An entry of `error_groups` or `tag_groups`: one that is no group of ours goes; otherwise, its value is made again.
local function mend_group(key, field, pattern)
    local value = redis.call('HGET', key, field)
    local is_ours = #field < 2000 and string.find(field, pattern)
    if not value or (is_ours and failed.read_group(field, value) == failed.group_of(field)) then
        return false
    elseif looking then
        return true
    elseif is_ours then
        failed.write_group(key, field, failed.group_of(field), now, now)
    else
        redis.call('HDEL', key, field)
    end
    return true
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
                still_ending({[holder] = true})
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
    -- a unique period that is over is not a fault: it is removed, but not reported; nor is the lock of a waiting job that
    -- is too late to start: it is free for others, and goes when the job expires
    locks = function(digest)
        local holder, ends = lock_holder(digest)
        local left = ends == 0 and holder and not covered(holder, ends) and not waiting_state(holder)
        if left or (ends > 0 and ends <= now) then
            write('HDEL', unique, digest)
        end
        return left
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
        local record = redis.call('HGET', jobs, id) or ''
        local most = most_of(limits, record, controls_of(record), true)
        local free = most > 0 and most - slots_taken(key) or math.huge
        return free > 0 and fill(key, free, 500) > 0 or unknown
    end,
    -- a job that is dead or waits for a retry and is not in the index: a version that has none moved it
    ['failed'] = function(entry) -- a name in brackets: `failed` is a library
        local seen, size, rest = string.match(entry, '^(%d+):(%d+):(.*)$')
        local id = looking and entry or string.sub(rest, size + 1)
        local missing = false
        for state, place in pairs({dead = dead, retry = retry}) do
            local at = redis.call('ZSCORE', place, id)
            local record = at and redis.call('HGET', jobs, id)
            if record and not failed.has(state, id, at, record) then
                missing = true
                if not looking then
                    failed.leave(id, at)
                    failed.enter(state, id, at, record, string.sub(rest, 1, size), tonumber(seen))
                end
            end
        end
        return missing
    end,
    -- a member of the index whose job has left, or is in other groups
    failures = function(member)
        local group, id = string.sub(member, 1, 13), string.sub(member, 27)
        local place = PLACE_OF[string.sub(group, 1, 1)]
        local at = place and redis.call('ZSCORE', place, id)
        local is_sound = at and failed.position_of(tonumber(at), id) == string.sub(member, 14)
            and redis.call('ZSCORE', failures, member) == '0' and is_known(group)
            and string.find(redis.call('HGET', grouped, id) or '', group, 1, true)
        return not is_sound and write('ZREM', failures, member) ~= 0
    end,
    grouped = function(id)
        local place = PLACE_OF[string.sub(redis.call('HGET', grouped, id) or '', 1, 1)]
        return not (place and redis.call('ZSCORE', place, id)) and write('HDEL', grouped, id) ~= 0
    end,
    error_groups = function(field)
        return mend_group(error_groups, field, '^[dr][^\n]*\n')
    end,
    tag_groups = function(field)
        return mend_group(tag_groups, field, '^[DR][^\n]*$')
    end,
}

write('ZREM', leases, '') -- first write: needs no memory
for i = FIRST, #ARGV do
    if bytes >= MOST_BYTES then -- bytes of jobs that went to dead; the next call handles what is left
        break
    end
    if repairs[kind](ARGV[i]) then
        repaired[#repaired + 1] = ARGV[i]
    end
end
return reply_again({repaired, died}, not looking and #repaired > 0)
