-- The order of a list over several queues, and what follows a given entry in it.
--
-- For scripts that get:
-- ARGV  2 state   3 limit   4 "reverse": from the highest score down
--       5 score, 6 queue and 7 member of the last entry that was returned ("" = from the beginning)
--! use bytewise
local state, limit, reverse = ARGV[2], tonumber(ARGV[3]), ARGV[4] == 'reverse'
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
    local function count_to(bound)
        if reverse then
            return redis.call('ZCOUNT', place, bound, '+inf')
        end
        return redis.call('ZCOUNT', place, '-inf', bound)
    end
    local how, low, high = ties(queue), count_to('(' .. after.score), count_to(after.score)
    if how ~= 'some' then
        return how == 'all' and low or high
    end
    return rank_behind(place, low, high, after.member, reverse)
end

-- The next entry that follows, of a sorted set.
local function of_place(place, queue)
    local rank, flat, at, size = nil, {}, 1, 0
    return function()
        if at > #flat and #flat == 2 * size then
            rank, size, at = (rank or first_rank(place, queue)) + size, size == 0 and 1 or math.min(limit, 8 * size), 1
            flat = redis.call(reverse and 'ZREVRANGE' or 'ZRANGE', place, rank, rank + size - 1, 'WITHSCORES')
        end
        local member, score = flat[at], flat[at + 1]
        at = at + 2
        return member and {score = score, value = tonumber(score), queue = queue, member = member}
    end
end

-- The answer, with queue, score and member of each entry behind what it has.
local function with_entries(answer, entries)
    for _, entry in ipairs(entries) do
        answer[#answer + 1] = entry.queue
        answer[#answer + 1] = entry.score
        answer[#answer + 1] = entry.member
    end
    return answer
end
