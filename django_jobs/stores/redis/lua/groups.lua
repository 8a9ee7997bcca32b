-- groups: the groups of failed jobs of several queues
--
-- KEYS  groups of each queue   ARGV  1 clock (not used)
-- Returns field, value of each group, flat, for each queue.
--! keys groups
local found = {}
for i, key in ipairs(KEYS) do
    found[i] = redis.call('HGETALL', key)
end
return found
