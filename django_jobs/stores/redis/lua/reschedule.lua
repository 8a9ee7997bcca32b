-- reschedule: waiting → scheduled (retry stays retry), at another time
--
-- ARGV  1 clock   2 run at (ms)   then the ids
-- Returns the ids that moved.
--! use clock places
local run_at = tonumber(ARGV[2])
local moved = {}
for i = 3, #ARGV do
    local id = ARGV[i]
    local state = redis.call('HEXISTS', jobs, id) == 1 and leave_waiting(id)
    if state then
        redis.call('ZADD', state == 'retry' and retry or scheduled, run_at, id)
        moved[#moved + 1] = id
    end
end
if #moved > 0 then
    wake_up(wake)
    wake_up(wake_alone)
end
return moved
