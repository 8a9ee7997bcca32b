-- How many bytes of records one answer carries; the same as MAX_BYTES, FIRST_READ and READ_MORE in
-- stores/contract/batches.py.
local MOST_BYTES, FIRST_READ, READ_MORE = 4 * 1024 * 1024, 16, 8

-- Keep only as many of these jobs as still fit into the answer, which has `bytes` so far; the first job always stays.
-- Returns the bytes of the answer with them.
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
