-- promote: scheduled and retry → queued, for jobs that are due
--
-- ARGV  1 clock   2 limit
-- Returns how many moved.
--! use clock due pauses
redis.call('ZREM', retry, '') -- first write: needs no memory
local _, closed_types = pauses()
admit_resumed(closed_types, tonumber(ARGV[2]))
return promote_due(tonumber(ARGV[2]))
