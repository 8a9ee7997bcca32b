-- rows: what a list shows of some jobs of several queues: the last attempt only, and the beginning of a result
--
-- KEYS  the keys below of each queue   ARGV  1 clock (not used)   2 most bytes of a result
--       then for each queue the number of ids, and the ids
-- Returns record, tries, result, attempts, claim, check-in, since of each job, flat.
--! keys jobs tries results attempts claims checkins since
--! use lastline
local most, flat, at = tonumber(ARGV[2]), {}, 3
for i = 1, #KEYS, 7 do
    local count = tonumber(ARGV[at])
    local ids = {unpack(ARGV, at + 1, at + count)}
    at = at + count + 1
    local columns = {}
    for k = 0, 5 do
        columns[k] = redis.call('HMGET', KEYS[i + k], unpack(ids))
    end
    local since = redis.pcall('ZMSCORE', KEYS[i + 6], unpack(ids)) -- nobody is to miss the jobs for it
    for k = 1, count do
        local result, log = columns[2][k], columns[3][k]
        for _, value in ipairs({
            columns[0][k], columns[1][k], result and string.sub(result, 1, most), log and last_line(log), columns[4][k],
            columns[5][k], since[k] or false,
        }) do
            flat[#flat + 1] = value or false
        end
    end
end
return flat
