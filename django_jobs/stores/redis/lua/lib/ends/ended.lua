-- In which state a job is or ended, and how to take it out of there.
--! on demand
--! use failed
--! keys succeeded kept dead cancelled expired

local ENDED = {{'succeeded', succeeded}, {'succeeded', kept}, {'dead', dead}, {'cancelled', cancelled}, {'expired', expired}}

-- The state of the first of these places that has the job, and its score there; nil if none has it.
local function state_in(places, id)
    for _, place in ipairs(places) do
        local at = redis.call('ZSCORE', place[2], id)
        if at then
            return place[1], tonumber(at)
        end
    end
    return nil
end

-- Take the job out of the first of these places that has it; returns the state it was in, nil if none has it.
local function leave_from(places, id)
    for _, place in ipairs(places) do
        local at = (place[1] == 'dead' or place[1] == 'retry') and redis.call('ZSCORE', place[2], id)
        if redis.call('ZREM', place[2], id) == 1 then
            if at then
                failed.leave(id, at)
            end
            return place[1]
        end
    end
    return nil
end

-- The state, and when it ended (ms); for a job in `kept`, until when it is kept.
local function ended_state(id)
    return state_in(ENDED, id)
end

-- Take the job out; returns the state it was in, nil if it has not ended.
local function leave_ended(id)
    return leave_from(ENDED, id)
end
