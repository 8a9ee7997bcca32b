-- walk: the members of one place that follow a given one, in the order of the place
--
-- ARGV  1 clock   2 place   3 score and 4 member of the last one ("" = from the beginning)   5 limit
--       6 highest score
-- Returns member, score of each, flat.
--! keys scheduled queued alone retry blocked succeeded kept dead cancelled expired
--! use bytewise
local PLACES = {
    scheduled = scheduled, queued = queued, alone = alone, retry = retry, blocked = blocked, succeeded = succeeded,
    kept = kept, dead = dead, cancelled = cancelled, expired = expired,
}
local place, score, member, limit = PLACES[ARGV[2]], ARGV[3], ARGV[4], tonumber(ARGV[5])

-- The rank of the first member behind (score, member), which may be gone by now.
local function next_rank()
    if score == '' then
        return 0
    end
    local low, high = redis.call('ZCOUNT', place, '-inf', '(' .. score), redis.call('ZCOUNT', place, '-inf', score)
    return rank_behind(place, low, high, member)
end

local first = next_rank()
local last = math.min(first + limit, redis.call('ZCOUNT', place, '-inf', ARGV[6])) - 1
return last < first and {} or redis.call('ZRANGE', place, first, last, 'WITHSCORES')
