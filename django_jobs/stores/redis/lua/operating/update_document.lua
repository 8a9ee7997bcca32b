-- update_document: sets some entries of a shared document, and removes others, if some have the values that they should
--
-- KEYS  1 document   ARGV  1 clock (not used)   2 how many entries must have a value   then entry, value ("" = there is
--       none) of each   then how many entries to set   then entry, value of each   then entries to remove
-- Returns 1, or 0 if an entry has another value: then nothing has changed.
local at = 3
for _ = 1, tonumber(ARGV[2]) do
    if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then
        return 0
    end
    at = at + 2
end
redis.call('HDEL', KEYS[1], '') -- first write: needs no memory, so that bulk operations run when Redis is full
local last = at + 2 * tonumber(ARGV[at])
for i = at + 1, last, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
    redis.call('HDEL', KEYS[1], ARGV[i])
end
return 1
