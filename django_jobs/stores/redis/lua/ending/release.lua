-- release: running → queued, at the front, not counted; or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 most jobs in the outbox, or ""   then per job: id, token
-- Returns the ids whose claim is stale.
--! use clock answers lines claim_end count finish unique
local before = answered()
if before then
    return lines_of(before)
end
local stale, released = {}, 0
for i = #ARGV - 1, 5, -2 do -- backwards, because each job goes before the one handled before it
    local id = ARGV[i]
    local claim = owns_at_end(id, ARGV[i + 1])
    if claim then
        local record = redis.call('HGET', jobs, id)
        local controls = controls_of(record)
        local stopped, holder = end_claim(id, claim, controls)
        if stopped then
            finish('cancelled', id, record, controls, tonumber(ARGV[4]), holder)
            count('cancelled', 1)
        else
            make_ready(id, controls, -next_number(1), has_crashed(redis.call('HGET', tries, id)), now)
            relock(id, controls)
        end
        released = released + 1
    else
        table.insert(stale, 1, id)
    end
end
if released > 0 then
    answer(table.concat(stale, '\n'))
end
return stale
