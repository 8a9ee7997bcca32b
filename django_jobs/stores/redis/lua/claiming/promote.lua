-- promote: scheduled and retry → queued, for jobs that are due
--
-- Arguments: limit.
-- Returns how many moved.
--! answers again
--! args limit:int
--! use due pauses
redis.call('ZREM', retry, '') -- first write: needs no memory
local _, closed_types = pauses()
admit_resumed(closed_types, limit)
local moved = promote_due(limit)
return reply_again(moved, moved > 0)
