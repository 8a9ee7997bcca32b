-- discard: running → cancelled, the attempt says why
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 attempt (JSON)   7 "archive"
-- Returns 1, or 0 when the claim is stale.
--! use clock answers claim_end count finish log
local id, token, attempt = ARGV[4], ARGV[5], ARGV[6]

if answered() then
    return 1
end
local claim = owns_at_end(id, token)
if not claim then
    return 0
end
local record = redis.call('HGET', jobs, id)
local controls = controls_of(record)
local _, holder = end_claim(id, claim, controls)
log_attempt(id, attempt)
finish('cancelled', id, record, controls, ARGV[7] == 'archive', holder)
count('cancelled', 1)
answer('1')
return 1
