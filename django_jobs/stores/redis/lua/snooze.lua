-- snooze: running → scheduled, not a failure; or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 delay (ms)   7 most jobs in the outbox, or ""
-- Returns the new state, or "" if the claim is stale.
--! use clock attempt_end log unique
--! keys scheduled
local id, token, delay = ARGV[4], ARGV[5], tonumber(ARGV[6])

local record, controls, stopped, holder = end_attempt(id, token)
if not record then
    return controls
end
local state = 'scheduled'
if stopped then
    state = stop_here(id, record, controls, tonumber(ARGV[7]), holder)
else
    never_expires(id, controls)
    redis.call('ZADD', scheduled, now + delay, id)
    relock(id, controls)
    wake_up(wake)
    wake_up(wake_alone)
end
answer(state)
return state
