-- sweep: drops entries that belong to a job and are stored outside its record, if the job is gone
--
-- Arguments: how ("look": change nothing), limit (how many entries of each key to check), then a cursor for each key
-- Returns {ids of jobs that are gone, next cursors (0 = the end)}
--! answers again
--! args how limit
--! keys jobs tries attempts results checkins stops since
local looking = how == 'look'
local gone, cursors = {}, {}
for i, key in ipairs({tries, attempts, results, checkins, stops, since}) do
    local found = redis.call(key == since and 'ZSCAN' or 'HSCAN', key, ARGV[FIRST + i - 1], 'COUNT', limit)
    cursors[i] = found[1]
    for at = 1, #found[2], 2 do
        local id, value = found[2][at], found[2][at + 1]
        -- A killed attempt that may still be running outlives its job; its entry is removed when it has ended.
        if redis.call('HEXISTS', jobs, id) == 0 and not (key == stops and string.find(value, '%z')) then
            gone[#gone + 1] = id
            if not looking then
                redis.call(key == since and 'ZREM' or 'HDEL', key, id)
            end
        end
    end
end
return reply_again({gone, cursors}, not looking and #gone > 0)
