-- bars: how many jobs of small groups of failed jobs have their time in each bar, of several queues; only reads
--
-- KEYS  chunks and members of each queue
-- ARGV  1 clock (not used)   2 beginning of the first bar, ms   3 width of a bar, ms   4 number of bars
--       5 most parts that a group may have   then for each queue the numbers of its groups, separated by spaces
-- Returns for each group bar and number of jobs, flat; or false if it has more parts.
--! keys chunks members
local first, width, number, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])

local function count(group)
    local parts = redis.call('ZRANGEBYLEX', chunks, '[' .. group .. ':', '(' .. group .. ';', 'LIMIT', 0, most + 1)
    if #parts > most then
        return false
    end
    local found, flat = {}, {}
    for _, part in ipairs(parts) do
        for line in string.gmatch(redis.call('HGET', members, part) or '', '[^\n]+') do
            local bar = math.floor(((tonumber(string.sub(line, 1, 13)) or 0) - first) / width)
            if bar >= 0 and bar < number then
                found[bar] = (found[bar] or 0) + 1
            end
        end
    end
    for bar, jobs_in in pairs(found) do
        flat[#flat + 1] = bar
        flat[#flat + 1] = jobs_in
    end
    return flat
end

local answers = {}
for i = 1, #KEYS / 2 do
    chunks, members = KEYS[2 * i - 1], KEYS[2 * i]
    for group in string.gmatch(ARGV[5 + i], '%d+') do
        answers[#answers + 1] = count(group)
    end
end
return answers
