-- sampled: the samples of the totals of one queue or several queues, and these totals
--
-- KEYS  samples and totals of each queue   ARGV  1 clock   2 "all": only the sums over all job types; "types": all totals;
--       "sample": all totals, and only the first two fields unless the last sample is of another hour   then the fields
-- Returns for each queue {now, when the last sample was taken ("" = never), {the texts}, totals (flat)}
--! use clock
--! keys samples totals
local HOUR = 3600000

-- The totals; of the whole queue only those that the samples have, as a queue may have thousands of job types.
local function totals_of(key)
    local flat = redis.call('HGETALL', key)
    if ARGV[2] ~= 'all' then
        return flat
    end
    local sums = {failed = 0, dead = 0, ['succeeded:'] = 0}
    for i = 1, #flat, 2 do
        local event = string.match(flat[i], '^succeeded:') or flat[i]
        if sums[event] then
            sums[event] = sums[event] + (tonumber(flat[i + 1]) or 0)
        end
    end
    local few = {}
    for event, sum in pairs(sums) do
        few[#few + 1] = event
        few[#few + 1] = string.format('%.0f', sum)
    end
    return few
end

local found = {}
for at = 1, #KEYS, 2 do
    local taken = redis.call('HGET', KEYS[at], 'taken') or ''
    local of_this_hour = math.floor((tonumber(taken) or 0) / HOUR) == math.floor(now / HOUR)
    local last = ARGV[2] == 'sample' and of_this_hour and 4 or #ARGV
    local texts = redis.call('HMGET', KEYS[at], unpack(ARGV, 3, last))
    found[#found + 1] = {string.format('%.0f', now), taken, texts, totals_of(KEYS[at + 1])}
end
return found
