-- list: the jobs of one state that follow a given one, over several queues together; only reads
--
-- KEYS  the keys below of each queue
-- ARGV  1 clock (not used)   2 state   3 limit   4 "reverse": from the highest score down
--       5 score, 6 queue and 7 member of the last one ("" = from the beginning)   8 "groups": only jobs of these groups;
--       "timed": leave out `kept`, whose scores are not the ends of the jobs
--       then for each queue its name, and with "groups" the numbers of the groups in it, separated by spaces
-- Returns queue, score, member of each, flat, in the order of score, queue, member.
--! keys scheduled queued alone claims retry blocked succeeded kept dead cancelled expired jobs attempts groups chunks members
--! use clock record failed bytewise
local EACH = 16 -- keys of a queue
local MOST_RUNNING = 10000
local state, limit, reverse, grouped = ARGV[2], tonumber(ARGV[3]), ARGV[4] == 'reverse', ARGV[8] == 'groups'
local timed = ARGV[8] == 'timed'
local after = ARGV[5] ~= '' and {score = ARGV[5], value = tonumber(ARGV[5]), queue = ARGV[6], member = ARGV[7]}

-- Does one entry come before the other in the list?
local function is_earlier(one, other)
    if reverse then
        one, other = other, one
    end
    if one.value ~= other.value then
        return one.value < other.value
    elseif one.queue ~= other.queue then
        return less(one.queue, other.queue)
    end
    return less(one.member, other.member)
end

-- How this queue stands to the last entry among entries of its score: "all" follow it, "none", or "some" (its queue).
local function ties(queue)
    if queue == after.queue then
        return 'some'
    end
    return less(after.queue, queue) ~= reverse and 'all' or 'none'
end

-- The rank (from the end the list begins at) of the first member that follows the last entry.
local function first_rank(place, queue)
    if not after then
        return 0
    end
    local function before(bound)
        if reverse then
            return redis.call('ZCOUNT', place, bound, '+inf')
        end
        return redis.call('ZCOUNT', place, '-inf', bound)
    end
    local how, low, high = ties(queue), before('(' .. after.score), before(after.score)
    if how ~= 'some' then
        return how == 'all' and low or high
    end
    while low < high do
        local middle = math.floor((low + high) / 2)
        local member = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', place, middle, middle)[1]
        local follows
        if reverse then
            follows = less(member, after.member)
        else
            follows = less(after.member, member)
        end
        if follows then
            high = middle
        else
            low = middle + 1
        end
    end
    return low
end

-- What follows, of a sorted set.
local function of_place(place, queue)
    local rank
    return function(most)
        rank = rank or first_rank(place, queue)
        local flat = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', place, rank, rank + most - 1, 'WITHSCORES')
        local found = {}
        for i = 1, #flat, 2 do
            found[#found + 1] = {score = flat[i + 1], value = tonumber(flat[i + 1]), queue = queue, member = flat[i]}
        end
        return found
    end
end

-- What follows, of the running jobs, which have no order in the store.
local function of_claims(queue)
    local sorted
    return function(most)
        if not sorted then
            sorted = {}
            local flat = redis.call('HLEN', claims) <= MOST_RUNNING and redis.call('HGETALL', claims)
                or redis.call('HSCAN', claims, 0, 'COUNT', MOST_RUNNING)[2]
            for i = 1, #flat, 2 do
                local at = string.match(flat[i + 1], '^[^:]*:(%d+):') or '0'
                local entry = {score = at, value = tonumber(at), queue = queue, member = flat[i]}
                if not after or is_earlier(after, entry) then
                    sorted[#sorted + 1] = entry
                end
            end
            table.sort(sorted, is_earlier)
        end
        return {unpack(sorted, 1, math.min(most, #sorted))}
    end
end

-- What follows, of one group of failed jobs; entries whose job has left are passed over.
local function of_group(number, place, queue)
    local chunks, members = chunks, members -- of this queue
    local bound = ''
    local inclusive = false
    if after then
        local how, at = ties(queue), after.value
        if how == 'some' then
            bound = failed.position_of(at, after.member)
        elseif (how == 'all') == reverse then
            bound, inclusive = failed.position_of(at + 1, ''), not reverse
        else
            bound, inclusive = failed.position_of(at, ''), not reverse
        end
    end
    local function next_chunk(chunk)
        local prefix = number .. ':'
        if reverse then
            local highest = chunk and '(' .. chunk or (bound == '' and '(' .. number .. ';' or '[' .. prefix .. bound)
            return redis.call('ZREVRANGEBYLEX', chunks, highest, '[' .. prefix, 'LIMIT', 0, 1)[1]
        end
        local first = not chunk and bound ~= ''
            and redis.call('ZREVRANGEBYLEX', chunks, '[' .. prefix .. bound, '[' .. prefix, 'LIMIT', 0, 1)[1]
        return first or redis.call(
            'ZRANGEBYLEX', chunks, (chunk and '(' or '[') .. (chunk or prefix), '(' .. number .. ';', 'LIMIT', 0, 1
        )[1]
    end
    local function follows(line)
        if bound == '' then
            return true
        elseif reverse then
            return failed.comes_before(line, bound)
        end
        return failed.comes_before(bound, line) or (inclusive and line == bound)
    end
    return function(most)
        local found, chunk = {}, next_chunk(nil)
        while chunk and #found < most do
            local lines = {}
            for line in string.gmatch(redis.call('HGET', members, chunk) or '', '[^\n]+') do
                lines[#lines + 1] = line
            end
            for i = 1, #lines do
                local line = lines[reverse and #lines + 1 - i or i]
                if #found < most and follows(line) then
                    local id = string.sub(line, 14)
                    local at = redis.call('ZSCORE', place, id)
                    if at and failed.position_of(tonumber(at), id) == line then
                        found[#found + 1] = {score = at, value = tonumber(at), queue = queue, member = id}
                    end
                end
            end
            chunk = next_chunk(chunk)
        end
        return found
    end
end

local streams = {}

local function add_stream(read)
    local head = read(1)[1]
    if head then
        streams[#streams + 1] = {head = head, read = read}
    end
end

for i = 0, #KEYS / EACH - 1 do
    local PLACES
    scheduled, queued, alone, claims, retry, blocked, succeeded, kept, dead, cancelled, expired, jobs, attempts, groups, chunks, members =
        unpack(KEYS, i * EACH + 1, i * EACH + EACH)
    PLACES = {
        scheduled = {scheduled}, queued = {queued, alone}, retry = {retry}, blocked = {blocked}, dead = {dead},
        succeeded = timed and {succeeded} or {succeeded, kept}, cancelled = {cancelled}, expired = {expired},
    }
    local queue = ARGV[9 + i * (grouped and 2 or 1)]
    if state == 'running' then
        add_stream(of_claims(queue))
    elseif grouped then
        for number in string.gmatch(ARGV[10 + 2 * i], '%d+') do
            add_stream(of_group(number, PLACES[state][1], queue))
        end
    else
        for _, place in ipairs(PLACES[state]) do
            add_stream(of_place(place, queue))
        end
    end
end

-- Entries before the head of a stream are not in it: once there are enough, the streams that begin later are not read.
table.sort(streams, function(one, other)
    return is_earlier(one.head, other.head)
end)
local found = {}
for _, stream in ipairs(streams) do
    if #found >= limit and not is_earlier(stream.head, found[limit]) then
        break
    end
    for _, entry in ipairs(stream.read(limit)) do
        found[#found + 1] = entry
    end
    table.sort(found, is_earlier)
    while #found > limit do
        table.remove(found)
    end
end
local flat = {}
for _, entry in ipairs(found) do
    flat[#flat + 1] = entry.queue
    flat[#flat + 1] = entry.score
    flat[#flat + 1] = entry.member
end
return flat
