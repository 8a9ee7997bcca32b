-- bury: running → dead
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 attempt (JSON)   7 failures to add   8 name
--       9 most jobs in the outbox, or ""   10 waiting and running times, for lib/times.lua
-- Returns 1, or 0 if the claim is stale.
--! use clock attempt_end bury times
local id, token, attempt, add, name = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), ARGV[8]

local record, controls, _, holder = end_attempt(id, token)
if not record then
    return controls == '' and 0 or 1
end
local failures, crashes, parked, suspect = get_tries(id)
set_tries(id, failures + add, crashes, parked, suspect)
if add > 0 then
    count('failed', add)
    count('failed:' .. name, add)
    count_minute('failed', add)
end
count_times(ARGV[10])
bury(id, record, controls, attempt, tonumber(ARGV[9]), holder)
answer('1')
return 1
