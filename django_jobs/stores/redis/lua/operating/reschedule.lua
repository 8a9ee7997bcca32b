-- reschedule: waiting → scheduled (retry stays retry), at another time
--
-- Arguments: run_at (ms), then the ids.
-- Returns the ids that moved.
--! answers lines
--! args run_at:int
--! use record log places
local moved = {}
for i = FIRST, #ARGV do
    local id = ARGV[i]
    local record = redis.call('HGET', jobs, id)
    local state = record and not is_too_late(id, controls_of(record)) and waiting_state(id)
    if state == 'retry' then
        failed.move(id, redis.call('ZSCORE', retry, id), run_at)
        redis.call('ZADD', retry, run_at, id)
    elseif state then
        leave_waiting(id)
        redis.call('ZADD', scheduled, run_at, id)
    end
    if state then
        moved[#moved + 1] = id
    end
end
if #moved > 0 then
    wake_up(wake)
    wake_up(wake_alone)
end
return reply_ids(moved)
