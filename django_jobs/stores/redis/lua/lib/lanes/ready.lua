-- → queued: into the job's lane, behind the jobs of its priority or before them.
--! keys queued alone seq
--! use score wake since

local function base_score(controls)
    local priority = controls and tonumber(controls.priority) or 0
    return (100.5 - math.max(-100, math.min(100, priority))) * STEP
end

local function is_alone(controls)
    return controls and (controls.alone or controls.at_most_once)
end

-- Take the next `n` numbers of the queue; returns the last.  A counter that cannot be used restarts at the current
-- time in ms, above every number it can have given: without it, no job could be accepted or claimed any more.
local function next_number(n)
    local number = redis.pcall('INCRBY', seq, n)
    if type(number) == 'table' or number < n or number >= STEP / 2 then
        redis.call('SET', seq, string.format('%.0f', now))
        number = redis.call('INCRBY', seq, n)
    end
    return number
end

-- Has a worker died while it held the job?  'suspect' if the whole worker died, 'alone' if only one of its processes
-- did.  `tried` is the job's value in `tries`, where the crashes of a suspect begin with a zero.
local function has_crashed(tried)
    local zero, crashes = string.match(tried or '', '^%d*:(0?)(%d*)')
    if (tonumber(crashes) or 0) == 0 then
        return false
    end
    return zero == '0' and 'suspect' or 'alone'
end

-- `crashed`: the result of has_crashed.  If a worker died while it held the job, the job runs alone until it ends,
-- whatever its controls say: next to other jobs, it could be blamed for their crashes.
--
-- `number`: its place within its priority; nil = behind all others, the negative of the next number = before all
-- others.
--
-- `from`: ms since when it can run; nil = since the time in its record, or the caller notes it.
local function make_ready(id, controls, number, crashed, from)
    if from then
        note_since({from, id})
    end
    local score = base_score(controls) + (number or next_number(1))
    if crashed or is_alone(controls) then
        redis.call('ZADD', alone, crashed == 'suspect' and score - SUSPECT or score, id)
        wake_up(wake_alone)
    else
        redis.call('ZADD', queued, score, id)
        wake_up(wake)
    end
end
