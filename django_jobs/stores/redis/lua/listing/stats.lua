-- stats: the numbers of one queue or several queues
--
-- KEYS  the keys below of each queue   ARGV  1 clock  2 ms: a job that was due so long ago is overdue
--       3 "" if nothing is archived
-- Returns for each queue {now, {count of each place}, ms since when the oldest job can run (0 = there is none), paused
-- (flat), totals (flat), overdue jobs, ms since when, ms when the oldest dead job died, jobs that wait for the archiver}
--! keys scheduled queued alone claims retry blocked succeeded kept dead cancelled expired jobs paused totals since archive
--! use clock oldest
local function size(zset)
    return redis.call('ZCARD', zset)
end

local function first_score(zset)
    return tonumber(redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]) or 0
end

-- How many scheduled jobs and retries are overdue, and since when.
local function overdue(in_scheduled, in_retry)
    local late, number, first = string.format('%.0f', now - tonumber(ARGV[2])), 0, math.huge
    for zset, jobs_in in pairs({[scheduled] = in_scheduled, [retry] = in_retry}) do
        local here = jobs_in > 0 and redis.call('ZCOUNT', zset, '-inf', late) or 0
        if here > 0 then
            number, first = number + here, math.min(first, first_score(zset))
        end
    end
    return number, number > 0 and string.format('%.0f', first) or '0'
end

local found = {}
for at = 1, #KEYS, 16 do
    scheduled, queued, alone, claims, retry, blocked, succeeded, kept, dead, cancelled, expired, jobs, paused, totals, since, archive =
        unpack(KEYS, at, at + 15)
    local first = oldest()
    local in_scheduled, in_retry, in_dead = size(scheduled), size(retry), size(dead)
    local late, late_since = overdue(in_scheduled, in_retry)
    found[#found + 1] = {
        now,
        {
            in_scheduled, size(queued), size(alone), redis.call('HLEN', claims), in_retry, size(blocked),
            size(succeeded), size(kept), in_dead, size(cancelled), size(expired),
        },
        first < math.huge and string.format('%.0f', first) or '0',
        redis.call('HGETALL', paused),
        redis.call('HGETALL', totals),
        late,
        late_since,
        in_dead > 0 and string.format('%.0f', first_score(dead)) or '0',
        ARGV[3] ~= '' and redis.call('LLEN', archive) or 0,
    }
end
return found
