-- groups: the groups of failed jobs of several queues; only reads
--
-- A call looks at a bounded number of groups, so it may deal with the first of the queues only.
-- KEYS  groups of each queue
-- ARGV  1 clock (not used)   2 what is returned: "each" group, the "sums" of all queues, or the "fields"
--       3 letter of the state, which "fields" do not need   4 … only groups with these fields, if there are any
-- Returns the number of queues that were dealt with, then
--       "each": for each of these queues a list of field, value; with fields in ARGV: of the values of these, or false
--       "sums": field, number of groups with jobs, jobs, first ms, last ms, queue (from 1) and value of the smallest group
--       "fields": each field once, flat
--! keys groups
local MOST = {each = 6000, sums = 5600, fields = 20000} -- groups in one call: some milliseconds
local what, letter, chosen = ARGV[2], string.byte(ARGV[3]), #ARGV > 3 and {unpack(ARGV, 4)}
local reply, sums, read = {0}, {}, {}

function read.each(key)
    reply[#reply + 1] = chosen and redis.call('HMGET', key, unpack(chosen)) or redis.call('HGETALL', key)
end

function read.fields(key)
    for _, field in ipairs(redis.call('HKEYS', key)) do
        if not sums[field] then
            sums[field] = true
            reply[#reply + 1] = field
        end
    end
end

local function add(field, value, queue)
    local jobs, first, last = string.match(value, '^%d%d%d%d%d:(%d+):(%d+):(%d+)$')
    if not jobs or jobs == '0' or #jobs + #first + #last > 48 then -- longer ones are no numbers of ours
        return
    end
    jobs, first, last = tonumber(jobs), tonumber(first), tonumber(last)
    local sum = sums[field]
    if not sum then
        sums[field] = {1, jobs, first, last, queue, value, jobs}
        return
    end
    sum[1], sum[2] = sum[1] + 1, sum[2] + jobs
    if jobs < sum[7] then
        sum[5], sum[6], sum[7] = queue, value, jobs
    end
    if first < sum[3] then
        sum[3] = first
    end
    if last > sum[4] then
        sum[4] = last
    end
end

function read.sums(key, queue)
    local values = chosen and redis.call('HMGET', key, unpack(chosen)) or redis.call('HGETALL', key)
    if chosen then
        for i, field in ipairs(chosen) do
            if values[i] then
                add(field, values[i], queue)
            end
        end
        return
    end
    for i = 1, #values, 2 do
        if string.byte(values[i]) == letter then
            add(values[i], values[i + 1], queue)
        end
    end
end

local looked = 0
for i, key in ipairs(KEYS) do
    looked = looked + (chosen and #chosen or redis.call('HLEN', key))
    if i > 1 and looked > MOST[what] then
        break
    end
    read[what](key, i)
    reply[1] = i
end
if what == 'sums' then
    for field, sum in pairs(sums) do
        reply[#reply + 1] = field
        for i = 1, 6 do
            reply[#reply + 1] = sum[i]
        end
    end
end
return reply
