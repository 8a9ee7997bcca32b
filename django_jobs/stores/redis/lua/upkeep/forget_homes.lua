-- forget_homes: reservations that nobody has touched since are removed, or kept for longer
--
-- The keys are those of a place of identities.
-- Arguments: before (reservations touched after that time, ms, stay as they are), then for each id: the id, its
--       reservation, and the time from which it is kept ("" = remove it).
-- Returns nothing.
--! answers again
--! args before:int
--! keys homes homes_at
redis.call('ZREM', homes_at, '') -- the first write needs no memory
local changed = false
for i = FIRST, #ARGV, 3 do
    local id, held, from = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local at = redis.call('ZSCORE', homes_at, id)
    if at and tonumber(at) <= before and (redis.call('HGET', homes, id) or '') == held then
        changed = true
        if from == '' then
            redis.call('ZREM', homes_at, id)
            redis.call('HDEL', homes, id)
        else
            redis.call('ZADD', homes_at, from, id)
        end
    end
end
answers_kept = OF_WORKFLOW
return reply_again('', changed)
