-- workflow_index: workflows that are there, or will be; and when each must be checked next
--
-- KEYS  1 workflows   2 workflow_checks
-- Arguments: verb ("add" | "check" (later or sooner) | "drop"), then for each: id, ms (until the check).
--! answers number
--! args verb
for i = FIRST, #ARGV, 2 do
    if verb == 'drop' then
        redis.call('ZREM', KEYS[1], ARGV[i])
        redis.call('ZREM', KEYS[2], ARGV[i])
    else
        if verb == 'add' then
            redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now), ARGV[i])
        end
        local due = string.format('%.0f', now + tonumber(ARGV[i + 1]))
        if type(redis.pcall('ZADD', KEYS[2], due, ARGV[i])) == 'table' then -- an error: the memory is full
            redis.pcall('ZREM', KEYS[2], '') -- first write: needs no memory; a user that may only add has no ZREM
            redis.call('ZADD', KEYS[2], due, ARGV[i])
        end
    end
end
return reply(1, true)
