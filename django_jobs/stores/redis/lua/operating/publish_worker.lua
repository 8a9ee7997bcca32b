-- publish_worker: a parent process reports that it is alive; those that have not reported in time are removed
--
-- KEYS  1 workers   2 seen (name → until, ms)   3 commands for this one
-- ARGV  1 clock   2 name   3 info (JSON)   4 how long this report is valid (ms)   5 an identifier of this call
-- Returns the commands.
--! use clock
local workers, seen, commands = KEYS[1], KEYS[2], KEYS[3]
local name, info, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
redis.call('ZREM', seen, '') -- first write: needs no memory
local gone = redis.call('ZRANGEBYSCORE', seen, '-inf', now, 'LIMIT', 0, 100)
if #gone > 0 then
    redis.call('ZREM', seen, unpack(gone))
    redis.call('HDEL', workers, unpack(gone))
end
redis.call('ZADD', seen, now + ttl, name)
redis.call('HSET', workers, name, string.format('%.0f:', now) .. info)
-- A returned command stays, marked with the call that got it, until the next call shows that the answer has arrived.
local told, marked = {}, {}
for _, entry in ipairs(redis.call('LRANGE', commands, 0, 9)) do
    local command, call = string.match(entry, '^([^\t]*)\t?(.*)$')
    if call == '' or call == ARGV[5] then
        told[#told + 1] = command
        marked[#marked + 1] = command .. '\t' .. ARGV[5]
    end
end
redis.call('DEL', commands)
if #marked > 0 then
    redis.call('RPUSH', commands, unpack(marked))
    redis.call('PEXPIRE', commands, 3600000)
end
return told
