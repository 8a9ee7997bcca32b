-- reschedule: waiting → scheduled (retry stays retry), at another time
--
-- ARGV  1 clock   2 channel   3 number   4 run at (ms)   then the ids
-- Returns the ids that moved.
--! use clock answers lines places
local run_at = tonumber(ARGV[4])
local before = answered()
if before then
    return lines_of(before)
end
local moved = {}
for i = 5, #ARGV do
    local id = ARGV[i]
    local state = redis.call('HEXISTS', jobs, id) == 1 and waiting_state(id)
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
    answer(table.concat(moved, '\n'))
else
    answer_in_doubt('')
end
return moved
