-- outlook: where a claim may find jobs, now or later; for several queues
--
-- KEYS  the keys below of each queue   ARGV  1 clock   2 lane
-- Returns for each queue, flat: jobs that wait in the lane (0 if the queue is paused), ms until a job is due or a pause
-- ends (-1 = neither; 0 = look now, also if a key cannot be read: the claim then reports what is wrong with it)
--! keys queued alone scheduled retry paused blocked
--! use clock closed next_due

-- Does a job wait for a pause that is over?  The next call that looks into the queue lets it in.
local function resumed(types)
    local from = '[\2'
    for _ = 1, 100 do
        local head = redis.call('ZRANGEBYLEX', blocked, from, '(\3', 'LIMIT', 0, 1)[1]
        if not head then
            return false
        end
        local name = string.match(head, '^\2(%Z*)%z')
        if name and not (types and types[name]) then
            return true
        end
        from = name and '(\2' .. name .. '\1' or '(' .. head
    end
    return true
end

local lane = ARGV[2]

local function look(place)
    if redis.call('EXISTS', place, scheduled, retry, paused, blocked) == 0 then
        return 0, -1
    end
    local closed, types, opens = pauses()
    if closed then
        return 0, opens
    end
    local due = resumed(types) and 0 or next_due()
    local left = redis.call('ZCOUNT', place, lane == 'clear' and 0 or '-inf', '+inf') -- suspects have scores below zero
    return left, opens >= 0 and (due < 0 or opens < due) and opens or due
end

local found = {}
for at = 1, #KEYS, 6 do
    queued, alone, scheduled, retry, paused, blocked = unpack(KEYS, at, at + 5)
    local readable, left, due = pcall(look, lane == 'shared' and queued or alone)
    found[#found + 1] = readable and left or 0
    found[#found + 1] = readable and due or 0
end
return found
