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
    local state = leave_from(WAITING, id)
    if state == 'queued' then
        drop_since(id)
        pass_turn(id)
    end
    return state or (unblock(id) and 'blocked' or nil)
end

local function waiting_state(id)
    return (state_in(WAITING, id)) or (redis.call('HEXISTS', waits, id) == 1 and 'blocked' or nil)
end
