-- Pauses in force: `paused` maps "" (the queue) or a job name to "until:since:reason".
--! keys paused blocked
--! use blocked

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

-- Jobs blocked by a pause that is over come back a few hundred at a time, whoever passes by.
local function admit_resumed(types, limit)
    local head = redis.call('ZRANGEBYLEX', blocked, '[\2', '(\3', 'LIMIT', 0, 1)
    local moved = 0
    while head[1] and moved < limit do
        local name = string.match(head[1], '^\2(%Z*)%z')
        if not name then -- unreadable: look behind it
            head = redis.call('ZRANGEBYLEX', blocked, '(' .. head[1], '(\3', 'LIMIT', 0, 1)
        elseif types and types[name] then
            -- still closed: look behind its range
            head = redis.call('ZRANGEBYLEX', blocked, '(' .. pause_key(name) .. '\1', '(\3', 'LIMIT', 0, 1)
        else
            moved = moved + admit(pause_key(name), limit - moved)
            head = redis.call('ZRANGEBYLEX', blocked, '(' .. pause_key(name) .. '\1', '(\3', 'LIMIT', 0, 1)
        end
    end
    return moved
end
