-- workflows_due: the workflows whose check is due; others are told of them again only after a while
--
-- KEYS  1 workflow_checks
-- Arguments: limit, again_in (ms until another caller is told of them).
-- Returns their ids.
--! answers lines
--! args limit again_in:int
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now), 'LIMIT', 0, limit)
for _, id in ipairs(ids) do
    -- Without memory this is refused.  Then others are told of them, too, which is harmless, and old ones are deleted.
    redis.pcall('ZADD', KEYS[1], 'XX', string.format('%.0f', now + again_in), id)
end
return reply(ids)
