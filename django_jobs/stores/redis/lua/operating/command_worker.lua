-- command_worker: leaves a command for a parent process that is alive
--
-- KEYS  1 seen   2 commands for it
-- Arguments: name, command.
-- Returns 1, or 0 if there is no such worker.
--! answers number
--! args name command
local ends = redis.call('ZSCORE', KEYS[1], name)
if not ends or tonumber(ends) <= now then
    return reply(0)
end
for _, waiting in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if waiting == command then
        return reply(1)
    end
end
redis.call('ZREM', KEYS[1], '') -- first write: needs no memory, so that a worker can be stopped when Redis is full
redis.call('RPUSH', KEYS[2], command)
redis.call('PEXPIRE', KEYS[2], 3600000)
return reply(1, true)
