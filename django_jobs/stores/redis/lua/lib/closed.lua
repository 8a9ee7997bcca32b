-- Pauses in force: `paused` maps "" (the queue) or a job name to "until:since:reason".
--! keys paused

-- Is the queue closed, which types are (a table, or nil when none is), in how many ms does the first of these
-- pauses end by itself (-1 = none does), and when did the last pause of the queue end (ms, 0 = not known)?  Those of
-- types that have ended are removed; that of the queue says since when its jobs can run, until none of them is left.
local function pauses()
    local closed, types, first, opened = false, nil, -1, 0
    if redis.call('EXISTS', paused) == 1 then
        local all = redis.call('HGETALL', paused)
        for i = 1, #all, 2 do
            local ends = tonumber(string.match(all[i + 1], '^(%d+):')) or 0
            if ends ~= 0 and ends <= now then
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
