-- command_worker: leaves a command for a parent process that is alive
--
-- KEYS  1 seen   2 commands for it
-- ARGV  1 clock   2 name   3 command
-- Returns 1, or 0 if there is no such worker.
--! use clock
local ends = redis.call('ZSCORE', KEYS[1], ARGV[2])
if not ends or tonumber(ends) <= now then
    return 0
end
for _, waiting in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if waiting == ARGV[3] then
        return 1
    end
end
redis.call('ZREM', KEYS[1], '') -- first write: needs no memory, so that a worker can be stopped when Redis is full
redis.call('RPUSH', KEYS[2], ARGV[3])
redis.call('PEXPIRE', KEYS[2], 3600000)
return 1
