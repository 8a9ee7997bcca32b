-- How many bytes of records one answer carries; the same as MAX_BYTES in stores/values/sizes.py.
--! keys jobs
local MOST_BYTES = 4 * 1024 * 1024
local AT_ONCE = 16 -- records in one read: each may be as large as MAX_PAYLOAD, and their sizes are not known before

-- Read the records of these jobs while they fit into the answer, which has `bytes` so far; the first always fits.  The
-- ids of the others are dropped.  Reads at most AT_ONCE records too many, and fewer if one of the first is large.
-- Returns the records (false if there is none), and the bytes of the answer with them.
local function read_records(ids, bytes)
    local records, n, largest, wanted = {}, 0, 1, #ids
    while n < wanted and (n == 0 or bytes < MOST_BYTES) do
        local room = math.max(1, math.ceil((MOST_BYTES - bytes) / largest))
        local last = math.min(n == 0 and 1 or n + math.min(AT_ONCE, room), wanted)
        local read = redis.call('HMGET', jobs, unpack(ids, n + 1, last))
        for i = 1, #read do
            if n == 0 or bytes < MOST_BYTES then
                local record = read[i]
                local size = record and #record or 0
                n = n + 1
                records[n] = record
                bytes = bytes + size
                if size > largest then
                    largest = size
                end
            end
        end
    end
    for i = wanted, n + 1, -1 do
        ids[i] = nil
    end
    return records, bytes
end
