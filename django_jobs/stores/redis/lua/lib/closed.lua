-- Pauses in force: `paused` maps "" (the queue) or a job name to "until:since:reason".
--! keys paused

-- Is the queue closed, which types are (a table, or nil when none is), and in how many ms does the first of these
-- pauses end by itself (-1 = none does)?  Those that have ended are removed.
local function pauses()
    local closed, types, first = false, nil, -1
    if redis.call('EXISTS', paused) == 1 then
        local all = redis.call('HGETALL', paused)
        for i = 1, #all, 2 do
            local ends = tonumber(string.match(all[i + 1], '^(%d+):')) or 0
            if ends ~= 0 and ends <= now then
                redis.call('HDEL', paused, all[i])
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
    return closed, types, first
end
