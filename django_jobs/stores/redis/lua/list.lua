-- list: the jobs of one state that follow a given one, over several queues together; only reads
--
-- KEYS  the keys below of each queue
-- ARGV  1 clock (not used)   2 state   3 limit   4 "reverse": from the highest score down
--       5 score, 6 queue and 7 member of the last one ("" = from the beginning)   8 "groups": only jobs of these groups;
--       "timed": leave out `kept`, whose scores are not the ends of the jobs
--       9 score, 10 queue and 11 member of one that need not be found, and none behind it ("" = none)
--       then for each queue its name, and with "groups" the numbers of the groups in it, separated by spaces
-- Returns queue, score, member of each, flat, in the order of score, queue, member.
--! keys scheduled queued alone claims retry blocked succeeded kept dead cancelled expired jobs attempts groups chunks members tags
--! use clock record failed bytewise listing
local EACH = 17 -- keys of a queue
local MOST_RUNNING = 10000
local grouped, timed = ARGV[8] == 'groups', ARGV[8] == 'timed'
local before = ARGV[9] ~= '' and {score = ARGV[9], value = tonumber(ARGV[9]), queue = ARGV[10], member = ARGV[11]}

-- The next entry that follows, of the running jobs, which have no order in the store.
local function of_claims(queue)
    local sorted, at = {}, 0
    local flat = redis.call('HLEN', claims) <= MOST_RUNNING and redis.call('HGETALL', claims)
        or redis.call('HSCAN', claims, 0, 'COUNT', MOST_RUNNING)[2]
    for i = 1, #flat, 2 do
        local since = string.match(flat[i + 1], '^[^:]*:(%d+):') or '0'
        local entry = {score = since, value = tonumber(since), queue = queue, member = flat[i]}
        if not after or is_earlier(after, entry) then
            sorted[#sorted + 1] = entry
        end
    end
    table.sort(sorted, is_earlier)
    return function()
        at = at + 1
        return sorted[at]
    end
end

-- The byte at which the line before this byte begins.  The pattern has an anchor: without it, the time of a long text
-- would grow with the square of its length.
local function line_before(text, at)
    local from = at - 100
    while from > 1 do
        local begin = string.match(string.sub(text, from, at - 2), '^.*\n()')
        if begin then
            return from + begin - 1
        end
        from = at - 8 * (at - from)
    end
    return string.match(string.sub(text, 1, math.max(0, at - 2)), '^.*\n()') or 1
end

-- The next entry that follows, of one group of failed jobs; entries whose job has left are passed over.
local function of_group(number, place, queue)
    local chunks, members = chunks, members -- of this queue
    local prefix, bound, inclusive = number .. ':', '', false
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
    local chunk = next_chunk(nil)
    local text, at -- of the chunk, and the byte at which the next line begins; from the end: behind the next line
    -- The lines are not split: of most groups one is needed.
    local function open()
        text = redis.call('HGET', members, chunk) or ''
        if bound == '' then
            at = reverse and #text + 1 or 1
            return
        end
        local there
        at, there = failed.find_line(text, bound)
        if there and not reverse and not inclusive then
            at = at + #bound + 1
        end
        bound = '' -- the other chunks follow as a whole
    end
    local function next_line()
        while chunk do
            if not text then
                open()
            end
            if reverse and at > 1 then
                local behind = at
                at = line_before(text, at)
                return string.sub(text, at, behind - 2)
            elseif not reverse and at <= #text then
                local from = at
                at = (string.find(text, '\n', at, true) or #text + 1) + 1
                return string.sub(text, from, at - 2)
            end
            chunk, text = next_chunk(chunk), nil
        end
    end
    return function()
        local line = next_line()
        while line do
            local id = string.sub(line, 14)
            local score = redis.call('ZSCORE', place, id)
            if score and failed.position_of(tonumber(score), id) == line then
                return {score = score, value = tonumber(score), queue = queue, member = id}
            end
            line = next_line()
        end
    end
end

-- The first entries so far, in order.
local found = {}

-- Could this be one of the first?
local function is_among_first(entry)
    return #found < limit and (not before or is_earlier(entry, before)) or found[limit] and is_earlier(entry, found[limit])
end

local function add(entry)
    local low, high = 1, #found + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        if is_earlier(entry, found[middle]) then
            high = middle
        else
            low = middle + 1
        end
    end
    table.insert(found, low, entry)
    found[limit + 1] = nil
end

-- Take the first entries of these streams.  Once there are enough, streams that begin later are not read.
local function take(streams)
    table.sort(streams, function(one, other)
        return is_earlier(one.head, other.head)
    end)
    for _, stream in ipairs(streams) do
        if not is_among_first(stream.head) then
            return
        end
        if stream.open then
            take(stream.open())
        else
            local entry = stream.head
            while entry and is_among_first(entry) do
                add(entry)
                entry = stream.next()
            end
        end
    end
end

local function add_stream(streams, next, open)
    local head = next()
    if head then
        streams[#streams + 1] = {head = head, next = next, open = open}
    end
end

local queues = {}
for i = 0, #KEYS / EACH - 1 do
    scheduled, queued, alone, claims, retry, blocked, succeeded, kept, dead, cancelled, expired, jobs, attempts, groups, chunks, members, tags =
        unpack(KEYS, i * EACH + 1, i * EACH + EACH)
    local PLACES = {
        scheduled = {scheduled}, queued = {queued, alone}, retry = {retry}, blocked = {blocked}, dead = {dead},
        succeeded = timed and {succeeded} or {succeeded, kept}, cancelled = {cancelled}, expired = {expired},
    }
    local queue, numbers = ARGV[12 + i * (grouped and 2 or 1)], ARGV[13 + 2 * i]
    if state == 'running' then
        add_stream(queues, of_claims(queue))
    elseif grouped then
        -- No group begins before its queue: most queues are passed over with one look, as long as groups are many.
        local place, of_chunks, of_members = PLACES[state][1], chunks, members
        add_stream(queues, of_place(place, queue), function()
            local streams = {}
            chunks, members = of_chunks, of_members
            for number in string.gmatch(numbers, '%d+') do
                add_stream(streams, of_group(number, place, queue))
            end
            return streams
        end)
    else
        for _, place in ipairs(PLACES[state]) do
            add_stream(queues, of_place(place, queue))
        end
    end
end
take(queues)
return with_entries({}, found)
