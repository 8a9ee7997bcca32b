-- Where a job is, and how to take it out of the place where it waits.
--! keys jobs queued alone scheduled retry claims
--! use record blocked failed ended

local WAITING = {{'queued', queued}, {'queued', alone}, {'scheduled', scheduled}, {'retry', retry}}

local function unblock(id)
    local member = redis.call('HGET', waits, id)
    if not member then
        return false
    end
    redis.call('HDEL', waits, id)
    redis.call('ZREM', blocked, member)
    return true
end

-- The job was let in from `blocked` and will not run: the next job of its limit takes its turn.
local function pass_turn(id)
    if redis.call('EXISTS', blocked) == 1 then
        local key = limit_key(controls_of(redis.call('HGET', jobs, id)))
        if key then
            admit(key, 1)
        end
    end
end

-- Take the job out; returns the state it was in, nil if it does not wait.
local function leave_waiting(id)
    for _, place in ipairs(WAITING) do
        local at = place[1] == 'retry' and redis.call('ZSCORE', retry, id)
        if redis.call('ZREM', place[2], id) == 1 then
            if at then
                failed.leave(id, at)
            elseif place[1] == 'queued' then
                drop_since(id)
                pass_turn(id)
            end
            return place[1]
        end
    end
    return unblock(id) and 'blocked' or nil
end

local function waiting_state(id)
    for _, place in ipairs(WAITING) do
        if redis.call('ZSCORE', place[2], id) then
            return place[1]
        end
    end
    return redis.call('HEXISTS', waits, id) == 1 and 'blocked' or nil
end
