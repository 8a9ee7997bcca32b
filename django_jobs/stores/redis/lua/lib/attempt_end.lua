-- The beginning of every script that ends one attempt.
-- ARGV  1 clock   2 channel   3 number   4 id   5 claim, as it is presented
--! keys jobs
--! use answers claim_end count finish recent

-- Take the claim away, and free what it held.  Returns record, controls, whether the job was asked to stop, holder; or
-- nil and the answer of this call: the answer given before, or "" if the claim is stale.
local function end_attempt(id, presented)
    local before = answered()
    if before then
        return nil, before
    end
    local claim, report = owns_at_end(id, presented)
    if not claim then
        return nil, ''
    end
    local record = redis.call('HGET', jobs, id) or ''
    local controls = controls_of(record)
    local stopped, holder = end_claim(id, claim, controls)
    note_report(id, report)
    return record, controls, stopped, holder
end

-- The job was asked to stop, so it is cancelled and does not wait again.  Returns its state.
local function stop_here(id, record, controls, archiving, holder)
    finish('cancelled', id, record, controls, archiving, holder)
    count('cancelled', 1)
    return 'cancelled'
end
