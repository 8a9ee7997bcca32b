-- discard: running → cancelled, with the attempt as the reason
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 attempt (JSON)   7 most jobs in the outbox, or ""
-- Returns 1, or 0 if the claim is stale.
--! use clock attempt_end log
local id, token, attempt = ARGV[4], ARGV[5], ARGV[6]

local record, controls, _, holder = end_attempt(id, token)
if not record then
    return controls == '' and 0 or 1
end
log_attempt(id, attempt)
finish('cancelled', id, record, controls, tonumber(ARGV[7]), holder)
count('cancelled', 1)
answer('1')
return 1
