-- → queued: into the job's lane, behind its equals or before them.
--! keys queued alone seq
--! use score wake since

local function base_score(controls)
    local priority = controls and tonumber(controls.priority) or 0
    return (100.5 - math.max(-100, math.min(100, priority))) * STEP
end

local function is_alone(controls)
    return controls and (controls.alone or controls.at_most_once)
end

-- The next `n` numbers of the queue: returns the last.  A counter that cannot be counted on begins again at the time of
-- day, above every number it can have given: no job would be accepted or claimed any more without it.
local function next_number(n)
    local number = redis.pcall('INCRBY', seq, n)
    if type(number) == 'table' or number < n or number >= STEP / 2 then
        redis.call('SET', seq, string.format('%.0f', now))
        number = redis.call('INCRBY', seq, n)
    end
    return number
end

-- Has a worker died while it held the job?  'suspect' if that worker died whole, 'alone' if only a process of it did.
-- `tried` is the job's value in `tries`, where the crashes of a suspect begin with a zero.
local function has_crashed(tried)
    local zero, crashes = string.match(tried or '', '^%d*:(0?)(%d*)')
    if (tonumber(crashes) or 0) == 0 then
        return false
    end
    return zero == '0' and 'suspect' or 'alone'
end

-- `crashed`: as has_crashed says.  A worker died that held the job, so until it ends it runs alone whatever its controls
-- say: beside others it could be charged with the crashes of its neighbours.
-- `number`: its place among its equals; nil = behind them all, the negative of the next number = before them all.
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
