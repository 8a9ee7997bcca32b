-- release: running → queued, at the front, not counted; or → cancelled if the job was asked to stop
--
-- ARGV  1 clock   2 channel   3 number   4 most jobs in the backlog, or ""   then per job: id, token
-- Returns the ids whose claim is stale.
--! answers lines
--! use claim_end finish log locker
local stale, released = {}, 0
for i = #ARGV - 1, 5, -2 do -- backwards, because each job goes before the one handled before it
    local id = ARGV[i]
    local claim = owns_at_end(id, ARGV[i + 1])
    if claim then
        local record = redis.call('HGET', jobs, id)
        local controls = controls_of(record)
        local stopped, holder = end_claim(id, claim, controls)
        if stopped then
            use_number(id)
            finish('cancelled', id, record, controls, tonumber(ARGV[4]), holder)
        else
            wait_again(id, controls, -next_number(1), has_crashed(redis.call('HGET', tries, id)))
        end
        released = released + 1
    else
        table.insert(stale, 1, id)
    end
end
return reply(stale, released > 0)
