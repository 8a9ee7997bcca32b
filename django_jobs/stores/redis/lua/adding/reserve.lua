-- reserve: these ids belong to jobs of this queue from now on, unless another queue has them
--
-- The keys are those of a place of identities (Keys.identity).
-- Arguments: queue, then for each id: the id, and the reservation that is to be replaced ("" = none).
-- A reservation is "number:queue".  Its number grows, so that no earlier one can be taken for it.
--
-- Returns the reservation of each id: a new one if it had none, or the one that was to be replaced.
--! answers lines
--! args queue
--! keys homes homes_at
answers_kept = OF_WORKFLOW
local out, changed = {}, false
for i = FIRST, #ARGV, 2 do
    local id = ARGV[i]
    local held = redis.call('HGET', homes, id)
    local number, home = string.match(held or '', '^(%d+):(.+)$') -- a damaged one is none
    if not number or held == ARGV[i + 1] then
        held = string.format('%.0f:%s', math.max(now, (tonumber(number) or 0) + 1), queue)
        home, changed = queue, true
        redis.call('HSET', homes, id, held)
    end
    if home == queue then -- its job may come soon: maintenance must not forget the id before
        changed = true
        redis.call('ZADD', homes_at, now, id)
    end
    out[#out + 1] = held
end
return reply(out, changed)
