-- Lets in the jobs that pauses of job types held back, when the pauses are over.
--! keys blocked
--! use closed blocked

-- Jobs blocked by a pause that is over return a few hundred at a time, in the calls that follow.
local function admit_resumed(types, limit)
    local head = redis.call('ZRANGEBYLEX', blocked, '[\2', '(\3', 'LIMIT', 0, 1)
    local moved = 0
    while head[1] and moved < limit do
        local name = string.match(head[1], '^\2(%Z*)%z')
        if not name then -- unreadable: continue behind it
            head = redis.call('ZRANGEBYLEX', blocked, '(' .. head[1], '(\3', 'LIMIT', 0, 1)
        elseif types and types[name] then
            -- still paused: continue behind its range
            head = redis.call('ZRANGEBYLEX', blocked, '(' .. pause_key(name) .. '\1', '(\3', 'LIMIT', 0, 1)
        else
            moved = moved + admit(pause_key(name), limit - moved)
            head = redis.call('ZRANGEBYLEX', blocked, '(' .. pause_key(name) .. '\1', '(\3', 'LIMIT', 0, 1)
        end
    end
    return moved
end
