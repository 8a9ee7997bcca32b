-- stats: the numbers of one queue or of several
--
-- KEYS  the keys below of each queue   ARGV  1 clock
-- Returns for each queue {now, {count of each place}, head records, paused (flat), totals (flat)}
--! use clock
--! keys scheduled queued alone claims retry blocked succeeded kept dead cancelled expired jobs paused totals
local function size(zset)
    return redis.call('ZCARD', zset)
end

local function head(lane)
    local id = redis.call('ZRANGE', lane, 0, 0)[1]
    return id and redis.call('HGET', jobs, id) or ''
end

local found = {}
for at = 1, #KEYS, 14 do
    scheduled, queued, alone, claims, retry, blocked, succeeded, kept, dead, cancelled, expired, jobs, paused, totals =
        unpack(KEYS, at, at + 13)
    found[#found + 1] = {
        now,
        {
            size(scheduled), size(queued), size(alone), redis.call('HLEN', claims), size(retry), size(blocked),
            size(succeeded), size(kept), size(dead), size(cancelled), size(expired),
        },
        {head(queued), head(alone)},
        redis.call('HGETALL', paused),
        redis.call('HGETALL', totals),
    }
end
return found
