-- publish_worker: a parent process reports that it is alive; those that have been silent for an hour are removed
--
-- KEYS  1 workers   2 seen (name → until, ms)   3 commands for this one
-- Arguments: name, info (JSON), ttl (how long this report is valid, ms), call (an identifier of this call).
-- Returns the commands.
--! answers again
--! args name info ttl:int call
local workers, seen, commands = KEYS[1], KEYS[2], KEYS[3]
redis.call('ZREM', seen, '') -- first write: needs no memory
local gone = redis.call('ZRANGEBYSCORE', seen, '-inf', now - 3600000, 'LIMIT', 0, 100)
if #gone > 0 then
    redis.call('ZREM', seen, unpack(gone))
    redis.call('HDEL', workers, unpack(gone))
end
redis.call('ZADD', seen, now + ttl, name)
redis.call('HSET', workers, name, string.format('%.0f:', now) .. info)
-- A returned command stays, marked with the call that got it, until the next call shows that the answer has arrived.
local told, marked = {}, {}
for _, entry in ipairs(redis.call('LRANGE', commands, 0, 9)) do
    local command, told_by = string.match(entry, '^([^\t]*)\t?(.*)$')
    if told_by == '' or told_by == call then
        told[#told + 1] = command
        marked[#marked + 1] = command .. '\t' .. call
    end
end
redis.call('DEL', commands)
if #marked > 0 then
    redis.call('RPUSH', commands, unpack(marked))
    redis.call('PEXPIRE', commands, 3600000)
end
return reply_again(told, true)
