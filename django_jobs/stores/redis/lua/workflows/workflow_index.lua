-- workflow_index: workflows that are there, or will be; and when each must be checked next
--
-- KEYS  1 workflows   2 workflow_checks
-- ARGV  1 clock   2 "add" | "check" (later or sooner) | "drop"   3 ms until the check   then the ids
--! use clock
local at = string.format('%.0f', now + ARGV[3])
for i = 4, #ARGV do
    if ARGV[2] == 'drop' then
        redis.call('ZREM', KEYS[1], ARGV[i])
        redis.call('ZREM', KEYS[2], ARGV[i])
    else
        if ARGV[2] == 'add' then
            redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now), ARGV[i])
        end
        redis.call('ZADD', KEYS[2], at, ARGV[i])
    end
end
return 1
