-- delete: any state but running → deleted, except a job that was killed and whose attempt has not ended yet
--
-- ARGV  1 clock   2 channel   3 number   then the ids
-- Returns the ids that were deleted.
--! answers lines
--! use record places endings finish
--! keys stops checkins expiries
local gone = {}
for i = 4, #ARGV do
    local id = ARGV[i]
    if redis.call('HEXISTS', claims, id) == 0 and redis.call('HEXISTS', jobs, id) == 1 and not is_ending(id) then
        local ended, at = ended_state(id)
        local _ = leave_waiting(id) or leave_ended(id)
        local record = redis.call('HGET', jobs, id)
        local controls = controls_of(record)
        unlock_for_good(id, controls)
        if ended ~= 'succeeded' then
            note_step('deleted', id, controls)
        end
        if not ended then
            note_calls('deleted', id, record, controls)
        end
        forget({id}, ended or 'cancelled', {math.min(at or now, now)})
        redis.call('HDEL', stops, id)
        redis.call('HDEL', checkins, id)
        redis.pcall('ZREM', expiries, id)
        tell_end(id)
        gone[#gone + 1] = id
    end
end
return reply_ids(gone)
