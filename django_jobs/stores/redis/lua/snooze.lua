-- snooze: running → scheduled, not a failure; or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 delay (ms)   7 "archive"
-- Returns the new state, or "" when the claim is stale.
--! use clock answers claim_end count finish log unique
--! keys scheduled
local id, token, delay = ARGV[4], ARGV[5], tonumber(ARGV[6])

local before = answered()
if before then
    return before
end
local claim = owns_at_end(id, token)
if not claim then
    return ''
end
local record = redis.call('HGET', jobs, id)
local controls = controls_of(record)
local stopped, holder = end_claim(id, claim, controls)
if stopped then
    finish('cancelled', id, record, controls, ARGV[7] == 'archive', holder)
    count('cancelled', 1)
    answer('cancelled')
    return 'cancelled'
end
never_expires(id, controls)
redis.call('ZADD', scheduled, now + delay, id)
relock(id, controls)
wake_up(wake)
wake_up(wake_alone)
answer('scheduled')
return 'scheduled'
