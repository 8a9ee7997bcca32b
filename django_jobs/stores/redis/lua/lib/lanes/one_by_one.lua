-- Jobs that must be the only claim of their process: if it dies, each of its jobs may have started, and any of them may
-- have been the reason.
--! keys jobs tries
--! use record ready
local separate = {at_once = 1} -- jobs that the next step looks at: one, then some, then as many as the caller wants

-- Keep the first jobs of a batch that one process may hold together with `held` others.  Returns whether it ends there.
separate.cut = function(batch, records, held)
    separate.at_once = separate.at_once == 1 and 16 or 1000
    local tried = #batch > 0 and redis.call('EXISTS', tries) == 1 and redis.call('HMGET', tries, unpack(batch)) or {}
    for i = 1, #batch do
        local controls = controls_of(records[i])
        if (tried[i] and has_crashed(tried[i])) or (controls and controls.at_most_once) then
            for n = #batch, (i == 1 and held == 0) and 2 or i, -1 do
                batch[n] = nil
            end
            return true
        end
    end
    return false
end
