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
        redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[i + 1])), ARGV[i])
    end
end
return reply(1, true)
