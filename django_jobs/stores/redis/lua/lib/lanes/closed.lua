-- Pauses in force: `paused` maps "" (the queue) or a job name to "until:since:reason".  One that was ended by hand has 0 as
-- its second number: a clock that is set back does not bring it back.
--! keys paused

-- Returns: is the queue paused; the paused types (a table, or nil if there are none); in how many ms the first of
-- these pauses ends by itself (-1 = none does); when the last pause of the queue ended (ms, 0 = not known).  Ended
-- pauses of types are removed.  An ended pause of the queue stays until none of the jobs that waited for its end is
-- left, because it says since when they can run.
local function pauses()
    local closed, types, first, opened = false, nil, -1, 0
    if redis.call('EXISTS', paused) == 1 then
        local all = redis.call('HGETALL', paused)
        for i = 1, #all, 2 do
            local ends, since = string.match(all[i + 1], '^(%d+):(%d*)')
            ends = tonumber(ends) or 0
            if ends ~= 0 and (ends <= now or since == '0') then
                if all[i] == '' then
                    opened = ends
                else
                    redis.call('HDEL', paused, all[i])
                end
            else
                if all[i] == '' then
                    closed = true
                else
                    types = types or {}
                    types[all[i]] = true
                end
                if ends ~= 0 then
                    first = first < 0 and ends - now or math.min(first, ends - now)
                end
            end
        end
    end
    return closed, types, first, opened
end
