-- bars: how many jobs of some groups of failed jobs have their time in each bar, of several queues; only reads
--
-- KEYS  the keys below of each queue
-- ARGV  1 clock (not used)   2 beginning of the first bar, ms   3 width of a bar, ms   4 number of bars
--       then for each queue the names of its groups, separated by spaces
-- Returns for each group bar and number of jobs, flat; bars without jobs are left out.
--! keys failures grouped error_groups tag_groups
--! use failed
local first, width, number = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local READ = 8 -- to read so many members of a group takes as long as to count those of one bar
local EACH = 4 -- keys of a queue

local function count(group)
    local function bounds_of(bar, next)
        local to = first + next * width
        return '[' .. group .. failed.position_of(first + bar * width, ''),
            '(' .. group .. (to > LATEST and ':' or failed.position_of(to, ''))
    end
    local from, to = bounds_of(0, number)
    local found, flat = {}, {}
    if first > LATEST then
        return flat
    elseif number == 1 or redis.call('ZLEXCOUNT', failures, from, to) > READ * number then
        for bar = 0, number - 1 do
            found[bar] = redis.call('ZLEXCOUNT', failures, bounds_of(bar, bar + 1))
        end
    else
        for _, member in ipairs(redis.call('ZRANGEBYLEX', failures, from, to)) do
            local bar = math.floor(((tonumber(string.sub(member, 14, 26)) or 0) - first) / width)
            found[bar] = (found[bar] or 0) + 1
        end
    end
    for bar, jobs_in in pairs(found) do
        if jobs_in > 0 then
            flat[#flat + 1] = bar
            flat[#flat + 1] = jobs_in
        end
    end
    return flat
end

local answers = {}
for i = 0, #KEYS / EACH - 1 do
    failures = KEYS[EACH * i + 1]
    for group in string.gmatch(ARGV[5 + i], '%w+') do
        answers[#answers + 1] = count(group)
    end
end
return answers
