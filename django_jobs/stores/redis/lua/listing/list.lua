-- list: the jobs of one state that follow a given one, over several queues together; only reads
--
-- KEYS  the keys below of each queue
-- ARGV  1 clock (not used)   2 state   3 limit   4 "reverse": from the highest score down
--       5 score, 6 queue and 7 member of the last one ("" = from the beginning)   8 "groups": only jobs of these groups;
--       "timed": leave out `kept`, whose scores are not the ends of the jobs
--       9 score, 10 queue and 11 member of one that need not be found, and none behind it ("" = none)
--       12 ms: leave out jobs that ended later ("" = none; not for the reverse order)
--       then for each queue its name, and with "groups" the names of the groups in it, separated by spaces
-- Returns queue, score, member of each, flat, in the order of score, queue, member.
--! keys scheduled queued alone claims retry blocked succeeded kept dead cancelled expired failures grouped error_groups tag_groups
--! use failed bytewise listing
local EACH = 15 -- keys of a queue
local grouped, timed = ARGV[8] == 'groups', ARGV[8] == 'timed'
local before = ARGV[9] ~= '' and {score = ARGV[9], value = tonumber(ARGV[9]), queue = ARGV[10], member = ARGV[11]}
local latest = tonumber(ARGV[12]) or math.huge

-- The next entry that follows, of the running jobs, which have no order in the store: only the first are sorted.
local function of_claims(queue)
    local sorted, at, last = {}, 0, nil
    local function sort()
        table.sort(sorted, is_earlier)
        for i = #sorted, limit + 1, -1 do
            sorted[i] = nil
        end
        last = sorted[limit]
    end
    local flat, entry = redis.call('HGETALL', claims), {queue = queue}
    for i = 1, #flat, 2 do
        entry.score, entry.member = string.match(flat[i + 1], '^[^:]*:(%d+):') or '0', flat[i]
        entry.value = tonumber(entry.score)
        if not (after and not is_earlier(after, entry) or last and is_earlier(last, entry)) then
            sorted[#sorted + 1], entry = entry, {queue = queue}
            if #sorted == 2 * limit then
                sort()
            end
        end
    end
    sort()
    return function()
        at = at + 1
        return sorted[at]
    end
end

-- The next entry that follows, of one group of failed jobs; members whose job has left are passed over.
local function of_group(group, place, queue)
    local index = failures -- of this queue
    local low, high = failed.bounds_of(group)
    if after then
        local how, at = ties(queue), after.value
        local bound = group .. failed.position_of((how == 'all') == reverse and at + 1 or at, '')
        if how == 'some' then
            bound = group .. failed.position_of(at, after.member)
        end
        if reverse then
            high = '(' .. bound
        else
            low = (how == 'some' and '(' or '[') .. bound
        end
    end
    local found, at, size = {}, 0, 0
    return function()
        while at < #found or #found == size do
            if at == #found then
                size, at = size == 0 and 1 or math.min(limit, 8 * size), 0
                found = reverse and redis.call('ZREVRANGEBYLEX', index, high, low, 'LIMIT', 0, size)
                    or redis.call('ZRANGEBYLEX', index, low, high, 'LIMIT', 0, size)
            end
            at = at + 1
            local member = found[at]
            if not member then
                return nil
            elseif reverse then
                high = '(' .. member
            else
                low = '(' .. member
            end
            local id = string.sub(member, 27)
            local score = redis.call('ZSCORE', place, id)
            if score and failed.position_of(tonumber(score), id) == string.sub(member, 14) then
                return {score = score, value = tonumber(score), queue = queue, member = id}
            end
        end
    end
end

-- The streams that have more entries, the one with the earliest head last.
local streams = {}

local function add(stream)
    stream.head = stream.next()
    if not stream.head or stream.head.value > latest and not stream.kept then
        return
    end
    local low, high = 1, #streams + 1
    while low < high do
        local middle = math.floor((low + high) / 2)
        if is_earlier(stream.head, streams[middle].head) then
            low = middle + 1
        else
            high = middle
        end
    end
    table.insert(streams, low, stream)
end

for i = 0, #KEYS / EACH - 1 do
    scheduled, queued, alone, claims, retry, blocked, succeeded, kept, dead, cancelled, expired, failures =
        unpack(KEYS, i * EACH + 1, i * EACH + EACH)
    local PLACES = {
        scheduled = {scheduled}, queued = {queued, alone}, retry = {retry}, blocked = {blocked}, dead = {dead},
        succeeded = timed and {succeeded} or {succeeded, kept}, cancelled = {cancelled}, expired = {expired},
    }
    local queue, groups = ARGV[13 + i * (grouped and 2 or 1)], ARGV[14 + 2 * i]
    if state == 'running' then
        add({next = of_claims(queue)})
    elseif grouped then
        -- No group begins before its queue: most queues are passed over with one look, as long as groups are many.
        local place, index = PLACES[state][1], failures
        add({next = of_place(place, queue), open = function()
            failures = index
            for group in string.gmatch(groups, '%w+') do
                add({next = of_group(group, place, queue)})
            end
        end})
    else
        for _, place in ipairs(PLACES[state]) do
            -- The scores of `kept` are not the ends of the jobs, but the times until which they are kept.
            add({next = of_place(place, queue), kept = place == kept})
        end
    end
end

-- Each entry is read when its turn comes: few more are read than are returned, however many streams there are.
local found = {}
while #found < limit and #streams > 0 do
    local stream = table.remove(streams)
    if before and not is_earlier(stream.head, before) then
        break
    elseif stream.open then
        stream.open()
    else
        found[#found + 1] = stream.head
        add(stream)
    end
end
return with_entries({}, found)
