-- revive: scheduled, retry, blocked, dead, cancelled, expired → queued; or → blocked, as long as its last attempt, which
-- was killed, may still be running
--
-- ARGV  1 clock   2 channel   3 number   4 new record ("" = unchanged)
--       5 the time (ms) that the job must have in its place ("" = any)
--       6 "again": also jobs that are delivered at most once and may have been started
--       7 the record that the job must have ("" = any)   then the ids
-- Returns the ids that moved.
--! answers lines
--! use record places endings log locker notes
--! keys tries results
local new_record = ARGV[4]
local expected = tonumber(ARGV[5])
local start_again = ARGV[6] == 'again'
local seen_record = ARGV[7]
local moved = {}

-- Is the job in its place with the time that the caller saw?
local function is_as_seen(id)
    if not expected then
        return true
    end
    for _, place in ipairs({scheduled, retry, dead, cancelled, expired}) do
        local at = redis.call('ZSCORE', place, id)
        if at then
            return tonumber(at) == expected
        end
    end
    return expected == 0
end

-- May this job, which has ended, have been started, although it must not be started twice?
local function may_have_started(ended, record)
    local controls = controls_of(record)
    return (ended == 'dead' or ended == 'cancelled') and controls and controls.at_most_once
end

-- Has another job the unique key with which this one would wait?  It has taken the key since this one ended or expired,
-- or has the key of the new record.
local function is_taken(id, ended, was, is)
    local digest = digest_of(is)
    local holder = digest and (ended or digest ~= digest_of(was) or is_too_late(id, was)) and locker(digest)
    return holder and holder ~= id
end

for i = 8, #ARGV do
    local id = ARGV[i]
    local record = redis.call('HGET', jobs, id)
    record = (seen_record == '' or seen_record == record) and record
    local ended = record and redis.call('HEXISTS', claims, id) == 0 and ended_state(id)
    local was, controls = controls_of(record), controls_of(new_record ~= '' and new_record or record)
    if record and ended ~= 'succeeded' and not redis.call('ZSCORE', queued, id) and not redis.call('ZSCORE', alone, id)
        and (ended or waiting_state(id)) and is_as_seen(id)
        and (start_again or not may_have_started(ended, record)) and not is_taken(id, ended, was, controls) then
        local _ = leave_ended(id) or leave_waiting(id)
        if ended then
            count_anew(id)
            redis.call('HDEL', results, id)
        end
        if new_record ~= '' then
            redis.call('HSET', jobs, id, new_record)
            if digest_of(controls) ~= digest_of(was) and not ends_with(id, digest_of(was)) then
                unlock_for_good(id, was)
            end
        end
        never_expires(id, controls)
        local crashed = has_crashed(redis.call('HGET', tries, id))
        local waits_for_end = wait_for_end(id, controls, crashed)
        if not waits_for_end then
            make_ready(id, controls, nil, crashed, now)
        end
        relock(id, controls)
        if ended and not waits_for_end then -- otherwise, its end was not noted
            note_step('live', id, controls)
        end
        moved[#moved + 1] = id
    end
end
return reply_ids(moved)
