-- sweep: what is kept beside the record of a job, of jobs that are gone → dropped
--
-- ARGV  1 clock   2 "look": change nothing   3 how many to look at in each key   then a cursor for each of the six keys below
-- Returns {ids of jobs that are gone, following cursors (0 = the end)}
--! keys jobs tries attempts results checkins stops since
local looking, limit = ARGV[2] == 'look', ARGV[3]
local gone, cursors = {}, {}
for i, key in ipairs({tries, attempts, results, checkins, stops, since}) do
    local reply = redis.call(key == since and 'ZSCAN' or 'HSCAN', key, ARGV[3 + i], 'COUNT', limit)
    cursors[i] = reply[1]
    for at = 1, #reply[2], 2 do
        local id, value = reply[2][at], reply[2][at + 1]
        -- A killed attempt that may still be at work outlives its job, and is forgotten when it has ended.
        if redis.call('HEXISTS', jobs, id) == 0 and not (key == stops and string.find(value, '%z')) then
            gone[#gone + 1] = id
            if not looking then
                redis.call(key == since and 'ZREM' or 'HDEL', key, id)
            end
        end
    end
end
return {gone, cursors}
