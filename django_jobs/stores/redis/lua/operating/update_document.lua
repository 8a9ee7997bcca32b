-- update_document: sets some entries of a shared document, and removes others, if some have the values that they should
--
-- KEYS  1 document
-- Arguments: expected (how many entries must have a value), then entry, value ("" = there is none) of each, then how many
--       entries to set, then entry, value of each, then entries to remove
-- Returns 1, or 0 if an entry has another value: then nothing has changed.
--! answers number
--! args expected:int
local at = FIRST
for _ = 1, expected do
    if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then
        return reply(0)
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
return reply(1, true)
