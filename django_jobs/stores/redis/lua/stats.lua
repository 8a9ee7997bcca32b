-- stats: the numbers of one queue or several queues
--
-- KEYS  the keys below of each queue   ARGV  1 clock
-- Returns for each queue {now, {count of each place}, ms since when the oldest job can run (0 = there is none), paused
-- (flat), totals (flat)}
--! keys scheduled queued alone claims retry blocked succeeded kept dead cancelled expired jobs paused totals since
--! use clock oldest
local function size(zset)
    return redis.call('ZCARD', zset)
end

local found = {}
for at = 1, #KEYS, 15 do
    scheduled, queued, alone, claims, retry, blocked, succeeded, kept, dead, cancelled, expired, jobs, paused, totals, since =
        unpack(KEYS, at, at + 14)
    local first = oldest()
    found[#found + 1] = {
        now,
        {
            size(scheduled), size(queued), size(alone), redis.call('HLEN', claims), size(retry), size(blocked),
            size(succeeded), size(kept), size(dead), size(cancelled), size(expired),
        },
        first < math.huge and string.format('%.0f', first) or '0',
        redis.call('HGETALL', paused),
        redis.call('HGETALL', totals),
    }
end
return found
