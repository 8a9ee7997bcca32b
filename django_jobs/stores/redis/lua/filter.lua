-- filter: the jobs of some groups that follow a given one, of several queues, by looking at job after job; only reads
--
-- For thousands of groups that have many of the jobs: of a list over them, most groups have nothing on the page, but the
-- first job of each would have to be found (list.lua).
-- KEYS  the keys below of each queue
-- ARGV  1 clock (not used)   2 state   3 limit   4 "reverse": from the highest score down
--       5 score, 6 queue and 7 member of the last one ("" = from the beginning)
--       8 most jobs that are looked at; it gives up before if few of them are in the groups
--       then for each queue its name, and the numbers of the groups in it, separated by spaces
-- Returns 1 if the list ended or the limit was reached, or 0; queue, score, member of the last job that was looked at
--       ("" = none); then of each job found, flat, in the order of score, queue, member.
--! keys dead retry jobs attempts groups chunks members tags
--! use clock record failed bytewise listing
local EACH = 8 -- keys of a queue
local MOST_BYTES = 4000000 -- of records and logs: some milliseconds
local FEW, ONE_IN = 100, 10 -- behind so many jobs, it gives up unless one in ten was in a group
local most = tonumber(ARGV[8])

-- The queues, sorted by the next job of each, the first one last.
local streams = {}

local function put(stream)
    stream.head = stream.next()
    if not stream.head then
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
    local stream = {first = i * EACH + 1, numbers = ARGV[10 + 2 * i]}
    stream.next = of_place(KEYS[stream.first + (state == 'dead' and 0 or 1)], ARGV[9 + 2 * i])
    put(stream)
end
local looked, read, found, last = 0, 0, {}, {queue = '', score = '', member = ''}
while #streams > 0 and #found < limit and looked < most and read < MOST_BYTES do
    if looked >= FEW and looked > ONE_IN * #found then
        break
    end
    local stream = table.remove(streams)
    local head = stream.head
    dead, retry, jobs, attempts, groups, chunks, members, tags = unpack(KEYS, stream.first, stream.first + EACH - 1)
    local is_in, size = failed.is_in(state, head.member, head.value, stream.numbers)
    if is_in then
        found[#found + 1] = head
    end
    looked, read, last = looked + 1, read + size, head
    put(stream)
end
local how_far = {(#streams == 0 or #found == limit) and 1 or 0, last.queue, last.score, last.member}
return with_entries(how_far, found)
