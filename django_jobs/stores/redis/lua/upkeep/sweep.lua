-- sweep: drops entries that belong to a job and are stored outside its record, if the job is gone
--
-- ARGV  1 clock   2 "look": change nothing   3 how many entries of each key to check   then a cursor for each key
-- Returns {ids of jobs that are gone, next cursors (0 = the end)}
--! keys jobs tries attempts results checkins stops since
local looking, limit = ARGV[2] == 'look', ARGV[3]
local gone, cursors = {}, {}
for i, key in ipairs({tries, attempts, results, checkins, stops, since}) do
    local reply = redis.call(key == since and 'ZSCAN' or 'HSCAN', key, ARGV[3 + i], 'COUNT', limit)
    cursors[i] = reply[1]
    for at = 1, #reply[2], 2 do
        local id, value = reply[2][at], reply[2][at + 1]
        -- A killed attempt that may still be running outlives its job; its entry is removed when it has ended.
        if redis.call('HEXISTS', jobs, id) == 0 and not (key == stops and string.find(value, '%z')) then
            gone[#gone + 1] = id
            if not looking then
                redis.call(key == since and 'ZREM' or 'HDEL', key, id)
            end
        end
    end
end
return {gone, cursors}
