-- update_document: sets some entries of a shared document, and removes others
--
-- KEYS  1 document   ARGV  1 clock (not used)   2 how many entries to set   then entry, value of each   then entries to remove
redis.call('HDEL', KEYS[1], '') -- first write: needs no memory, so that bulk operations run when Redis is full
local last = 2 + 2 * tonumber(ARGV[2])
for i = 3, last, 2 do
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
for i = last + 1, #ARGV do
    redis.call('HDEL', KEYS[1], ARGV[i])
end
return 1
