-- groups: the groups of failed jobs of several queues, or the signatures of their errors; only reads
--
-- A call looks at a bounded number of groups, so it may deal with the first of the queues only.
-- KEYS  the keys below of each queue
-- ARGV  1 clock (not used)   2 what is returned: "each" group, the "sums" of all queues, the "fields", or the "errors"
--       3 letter of the groups: a small one of groups by error, a capital of groups by tag; "fields" and "errors" do not need it
--       4 … only groups with these fields, if there are any
-- Returns the number of queues that were dealt with, then
--       "each": for each of these queues a list of field, value and number of jobs of each group
--       "sums": field, number of groups with jobs, jobs, first ms, last ms; queue (from 1), value and number of jobs of
--       the smallest group
--       "fields": each field once, flat
--       "errors": the signature of each remembered error once, flat
--! keys failures grouped error_groups tag_groups errors
--! use failed
local EACH = 5 -- keys of a queue
local MOST = {each = 4000, sums = 5000, fields = 20000, errors = 20000} -- groups in one call: some milliseconds
local READ = 4 -- to read so many members takes as long as to count those of one group
local what, letter, chosen = ARGV[2], ARGV[3], #ARGV > 3 and {unpack(ARGV, 4)}
local reply, sums, read, byte = {0}, {}, {}, string.byte(letter)

-- Field and value of each group that is wanted.
local function groups_in(key)
    local flat = {}
    if not chosen then
        return redis.call('HGETALL', key)
    end
    for i, value in ipairs(redis.call('HMGET', key, unpack(chosen))) do
        if value then
            flat[#flat + 1] = chosen[i]
            flat[#flat + 1] = value
        end
    end
    return flat
end

-- How many jobs the group with this digest has.  `number`: of so many groups of this queue it is asked.
local function counter(number)
    if redis.call('ZCARD', failures) > READ * number then
        return function(digest)
            return redis.call('ZLEXCOUNT', failures, failed.bounds_of(letter .. digest))
        end
    end
    local found = {}
    for _, member in ipairs(redis.call('ZRANGEBYLEX', failures, '[' .. letter, '(' .. letter .. 'g')) do
        local digest = string.sub(member, 2, 13)
        found[digest] = (found[digest] or 0) + 1
    end
    return function(digest)
        return found[digest] or 0
    end
end

function read.each(key)
    local flat, found = groups_in(key), {}
    local count = counter(#flat / 2)
    for i = 1, #flat, 2 do
        local field, value = flat[i], flat[i + 1]
        if string.byte(field) == byte then
            local at = #found
            found[at + 1], found[at + 2], found[at + 3] = field, value, count(string.sub(value, 1, 12))
        end
    end
    reply[#reply + 1] = found
end

function read.fields(key)
    for _, field in ipairs(redis.call('HKEYS', key)) do
        if not sums[field] then
            sums[field] = true
            reply[#reply + 1] = field
        end
    end
end

read.errors = read.fields

local function add(queue, field, value, jobs_in, first, last)
    local sum = sums[field]
    if not sum then
        sums[field] = {1, jobs_in, first, last, queue, value, jobs_in}
        return
    end
    sum[1], sum[2] = sum[1] + 1, sum[2] + jobs_in
    if jobs_in < sum[7] then
        sum[5], sum[6], sum[7] = queue, value, jobs_in
    end
    if first < sum[3] then
        sum[3] = first
    end
    if last > sum[4] then
        sum[4] = last
    end
end

function read.sums(key, queue)
    local flat = groups_in(key)
    local count = counter(#flat / 2)
    for i = 1, #flat, 2 do
        local value = flat[i + 1]
        local digest, first, last
        if string.byte(flat[i]) == byte and #value <= 48 then -- longer ones are no numbers of ours
            digest, first, last = string.match(value, '^(%x+):(%d+):(%d+)$')
        end
        local jobs_in = digest and count(digest) or 0
        if jobs_in > 0 then
            add(queue, flat[i], value, jobs_in, tonumber(first), tonumber(last))
        end
    end
end

local looked = 0
for i = 1, #KEYS / EACH do
    failures, grouped, error_groups, tag_groups, errors = unpack(KEYS, EACH * (i - 1) + 1, EACH * i)
    local key = what == 'errors' and errors or string.find(letter, '^[DR]') and tag_groups or error_groups
    looked = looked + (chosen and #chosen or redis.call('HLEN', key))
    if i > 1 and looked > MOST[what] then
        break
    end
    read[what](key, i)
    reply[1] = i
end
for field, sum in pairs(what == 'sums' and sums or {}) do
    reply[#reply + 1] = field
    for i = 1, 7 do
        reply[#reply + 1] = sum[i]
    end
end
return reply
