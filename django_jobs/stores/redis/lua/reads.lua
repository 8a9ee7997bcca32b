-- reads: plain reads of several keys in one call
--
-- A call reads a bounded amount, so it may make the first of the reads only.
-- KEYS  the key of each read
-- ARGV  1 clock (not used)   then for each read: the command, the number of its other arguments, and these
-- Returns the replies to the first of the reads, at least one.
local MOST, MOST_BYTES = 20000, 2000000 -- entries, and bytes of texts: some milliseconds
local replies, at, entries, size = {}, 2, 0, 0
for i, key in ipairs(KEYS) do
    local number = tonumber(ARGV[at + 1])
    local reply = redis.call(ARGV[at], key, unpack(ARGV, at + 2, at + 1 + number))
    replies[i], at = reply, at + 2 + number
    for _, each in ipairs(type(reply) == 'table' and reply or {}) do
        entries, size = entries + 1, size + #(each or '')
    end
    if entries > MOST or size > MOST_BYTES then
        break
    end
end
return replies
