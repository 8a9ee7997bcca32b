-- sample: write a sample of the totals of one queue or several queues, unless another worker was faster
--
-- KEYS  samples of each queue
-- Arguments: ttl (for how long samples are kept after the last, ms), then for each queue when its last sample had been
--       taken ("" = never), the number of the fields and values that follow, and these
-- Returns nothing: the logs are the same, whoever wrote them.
--! answers again
--! args ttl
--! keys samples
local at, taken = FIRST, false
for _, key in ipairs(KEYS) do
    local before, number = ARGV[at], tonumber(ARGV[at + 1])
    if (redis.call('HGET', key, 'taken') or '') == before then
        redis.call('HSET', key, unpack(ARGV, at + 2, at + 1 + number))
        redis.call('PEXPIRE', key, ttl)
        taken = true
    end
    at = at + 2 + number
end
return reply_again({}, taken)
