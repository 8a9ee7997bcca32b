-- retry: running → retry, or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 attempt (JSON)   7 delay (ms)   8 name
--       9 most jobs in the outbox, or ""   10 waiting and running times, for lib/times.lua
-- Returns the new state, or "" if the claim is stale.
--! use clock attempt_end log
--! keys retry
--! use ready failed times
local id, token, attempt, delay, name = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]

local record, controls, stopped, holder = end_attempt(id, token)
if not record then
    return controls
end
local failures, crashes, parked, suspect = get_tries(id)
set_tries(id, failures + 1, crashes, parked, suspect)
log_attempt(id, attempt)
count('failed', 1)
count('failed:' .. name, 1)
count_minute('failed', 1)
count_times(ARGV[10])
local state = 'retry'
if stopped then
    state = stop_here(id, record, controls, tonumber(ARGV[9]), holder)
else
    redis.call('ZADD', retry, now + delay, id)
    failed.enter('retry', id, now + delay, record)
    relock(id, controls)
    count('retried', 1)
    count('retried:' .. name, 1)
    wake_up(wake)
    wake_up(wake_alone)
end
answer(state)
return state
