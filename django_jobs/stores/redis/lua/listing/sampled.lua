-- sampled: the samples of the totals of one queue or several queues, and these totals
--
-- KEYS  samples and totals of each queue   ARGV  1 clock   2 "all": only the sums over all job types; "types": all totals;
--       "sample": all totals, and the fields of the hours only if the last sample is of another hour   then the fields
-- Returns for each queue {now, when the last sample was taken ("" = never), {the fields}, totals (flat)}
--! use clock
--! keys samples totals
local HOUR = 3600000
local EVENTS = {failed = true, dead = true}

local function fields_for(taken)
    local fields, same_hour = {}, math.floor((tonumber(taken) or 0) / HOUR) == math.floor(now / HOUR)
    for i = 3, #ARGV do
        if ARGV[2] ~= 'sample' or not same_hour or not string.find(ARGV[i], ':' .. HOUR, 1, true) then
            fields[#fields + 1] = ARGV[i]
        end
    end
    return fields
end

-- The totals; of the whole queue only those that the samples have, as a queue may have thousands of job types.
local function totals_of(key)
    local flat = redis.call('HGETALL', key)
    if ARGV[2] ~= 'all' then
        return flat
    end
    local few, succeeded = {}, 0
    for i = 1, #flat, 2 do
        if EVENTS[flat[i]] then
            few[#few + 1] = flat[i]
            few[#few + 1] = flat[i + 1]
        elseif string.sub(flat[i], 1, 10) == 'succeeded:' then
            succeeded = succeeded + (tonumber(flat[i + 1]) or 0)
        end
    end
    few[#few + 1] = 'succeeded:'
    few[#few + 1] = string.format('%.0f', succeeded)
    return few
end

local found = {}
for at = 1, #KEYS, 2 do
    local taken = redis.call('HGET', KEYS[at], 'taken') or ''
    local fields, values = fields_for(taken), {}
    local texts = redis.call('HMGET', KEYS[at], unpack(fields))
    for i, field in ipairs(fields) do
        values[#values + 1] = field
        values[#values + 1] = texts[i] or ''
    end
    found[#found + 1] = {string.format('%.0f', now), taken, values, totals_of(KEYS[at + 1])}
end
return found
