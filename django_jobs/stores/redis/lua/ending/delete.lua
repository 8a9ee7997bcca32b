-- delete: any state but running → deleted, except a job that was killed and whose attempt has not ended yet
--
-- ARGV  1 clock   2 channel   3 number   then the ids
-- Returns the ids that were deleted.
--! use clock record answers lines places endings finish
--! keys stops checkins
local before = answered()
if before then
    return lines_of(before)
end
local gone = {}
for i = 4, #ARGV do
    local id = ARGV[i]
    if redis.call('HEXISTS', claims, id) == 0 and redis.call('HEXISTS', jobs, id) == 1 and not is_ending(id) then
        local ended, at = ended_state(id)
        local _ = leave_waiting(id) or leave_ended(id)
        local controls = controls_of(redis.call('HGET', jobs, id))
        unlock_for_good(id, controls)
        if ended ~= 'succeeded' then
            note_step('deleted', id, controls)
        end
        forget({id}, ended or 'cancelled', {math.min(at or now, now)})
        redis.call('HDEL', stops, id)
        redis.call('HDEL', checkins, id)
        tell_end(id)
        gone[#gone + 1] = id
    end
end
answer_ids(gone)
return gone
