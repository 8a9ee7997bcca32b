-- Who waits for the end of a job: `waiters` has its id, and its end is told in the stream `ends`, which all processes with
-- waiters read.  A key of another type must not keep a job from ending: its waiters look by themselves before long.
--! keys waiters ends
local MOST_TOLD, TOLD_FOR = 10000, 60000 -- entries; ms

-- The job has ended, or gone.  Does anybody wait for that?
local function tell_end(id)
    if redis.pcall('HDEL', waiters, id) ~= 1 then
        return false
    end
    redis.pcall('XADD', ends, 'MAXLEN', '~', MOST_TOLD, '*', 'id', id)
    redis.pcall('PEXPIRE', ends, TOLD_FOR)
    return true
end
