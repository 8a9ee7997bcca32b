-- Reports the ends of jobs that are waited for: `waiters` has the ids, and the ends are written to the stream `ends`,
-- which all processes with waiting callers read.  A key of another type must not keep a job from ending: callers also
-- check by themselves soon.
--! keys waiters ends

-- The job has ended, or was deleted.  Returns whether its end was waited for.
local function tell_end(id)
    local MOST_TOLD, TOLD_FOR = 10000, 60000 -- entries; ms
    if redis.pcall('HDEL', waiters, id) ~= 1 then
        return false
    end
    redis.pcall('XADD', ends, 'MAXLEN', '~', MOST_TOLD, '*', 'id', id)
    redis.pcall('PEXPIRE', ends, TOLD_FOR)
    return true
end
