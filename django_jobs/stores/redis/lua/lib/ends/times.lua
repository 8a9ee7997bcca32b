-- Waiting and running times: `timed` maps a job type to its place in `times`, a string of 64-bit numbers, of which each
-- place has SLOTS (core/times.py).  Place 0 is for the job types that found no other.
--! keys times timed
local SLOTS, MOST_NAMES = 32, 100

-- Add what `as_text` in core/times.py wrote.  Statistics must not stop work: errors (a key has another type) are left.
local function count_times(text)
    local names, changes = {}, {}
    for name, change in string.gmatch(text, '([^\n]*)\n([^\n]*)\n') do
        names[#names + 1] = name
        changes[#changes + 1] = change
    end
    if #names == 0 then
        return
    end
    local places = redis.pcall('HMGET', timed, unpack(names))
    for i, name in ipairs(names) do
        local place = tonumber(places[i] or nil)
        if not place then
            local known = redis.pcall('HLEN', timed)
            place = 0
            if type(known) == 'number' and known < MOST_NAMES and name ~= '' then
                place = known + 1
                redis.pcall('HSET', timed, name, place)
            end
        end
        local increments = {}
        for slot, by in string.gmatch(changes[i], '(%d+):(%d+)') do
            local at = #increments
            increments[at + 1], increments[at + 2] = 'INCRBY', 'i64'
            increments[at + 3] = '#' .. string.format('%d', place % (MOST_NAMES + 1) * SLOTS + slot)
            increments[at + 4] = by
        end
        redis.pcall('BITFIELD', times, unpack(increments))
    end
end
