-- How many bytes of records one answer carries; as MAX_BYTES, FIRST_READ and READ_MORE in stores/contract/batches.py.
local MOST_BYTES, FIRST_READ, READ_MORE = 4 * 1024 * 1024, 16, 8

-- Leave only as many of these jobs as the answer should still carry, which has `bytes` so far; the first stays anyway.
-- Returns the bytes that it has then.
local function cut(ids, records, bytes)
    for i = 1, #ids do
        if i > 1 and bytes >= MOST_BYTES then
            for j = #ids, i, -1 do
                ids[j], records[j] = nil, nil
            end
            break
        end
        bytes = bytes + (records[i] and #records[i] or 0)
    end
    return bytes
end
