-- park: running → blocked, until a worker that knows the name claims; or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 digest of the names that this worker knows   7 "archive"
-- Returns the new state, or "" when the claim is stale.
--! use clock answers claim_end count finish unique unknown
local id, token, knows = ARGV[4], ARGV[5], ARGV[6]

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
redis.call('HLEN', unknown) -- of another type it fails before the job is taken out
redis.call('HLEN', tries)
local stopped, holder = end_claim(id, claim, controls)
local state = 'cancelled'
if stopped then
    finish('cancelled', id, record, controls, ARGV[7] == 'archive', holder)
    count('cancelled', 1)
else
    local crashed = has_crashed(redis.call('HGET', tries, id))
    local letter = crashed == 'suspect' and 'x' or (crashed or is_alone(controls)) and 'a' or 's'
    local name = name_of(record)
    learn_unknown(knows, name)
    park(id, name, base_score(controls) - next_number(1), letter)
    relock(id, controls)
    make_offer(letter)
    state = 'blocked'
end
answer(state)
return state
