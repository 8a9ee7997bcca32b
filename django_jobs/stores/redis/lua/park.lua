-- park: running → blocked, until a worker that knows the name claims; or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 id   5 token   6 digest of the names that this worker knows
--       7 most jobs in the outbox, or ""
-- Returns the new state, or "" if the claim is stale.
--! use clock attempt_end unique unknown
local id, token, knows = ARGV[4], ARGV[5], ARGV[6]

redis.call('HLEN', unknown) -- fails on a key of another type, before the job is taken out
redis.call('HLEN', tries)
local record, controls, stopped, holder = end_attempt(id, token)
if not record then
    return controls
end
local state = 'blocked'
if stopped then
    state = stop_here(id, record, controls, tonumber(ARGV[7]), holder)
else
    local crashed = has_crashed(redis.call('HGET', tries, id))
    local letter = crashed == 'suspect' and 'x' or (crashed or is_alone(controls)) and 'a' or 's'
    local name = name_of(record)
    learn_unknown(knows, name)
    park(id, name, base_score(controls) - next_number(1), letter)
    relock(id, controls)
    make_offer(letter)
end
answer(state)
return state
