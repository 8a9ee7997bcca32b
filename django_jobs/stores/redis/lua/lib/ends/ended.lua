-- In which state a job ended, and how to take it out of there.
--! on demand
--! use failed
--! keys succeeded kept dead cancelled expired

local ENDED = {{'succeeded', succeeded}, {'succeeded', kept}, {'dead', dead}, {'cancelled', cancelled}, {'expired', expired}}

-- The state, and when it ended (ms); for a job in `kept`, until when it is kept.
local function ended_state(id)
    for _, place in ipairs(ENDED) do
        local at = redis.call('ZSCORE', place[2], id)
        if at then
            return place[1], tonumber(at)
        end
    end
    return nil
end

-- Take the job out; returns the state it was in, nil if it has not ended.
local function leave_ended(id)
    for _, place in ipairs(ENDED) do
        local at = place[1] == 'dead' and redis.call('ZSCORE', dead, id)
        if redis.call('ZREM', place[2], id) == 1 then
            if at then
                failed.leave(id, at)
            end
            return place[1]
        end
    end
    return nil
end
