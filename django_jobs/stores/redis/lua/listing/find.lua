-- find: is there a job with this id?
--
-- KEYS  jobs of each queue   ARGV  1 clock (not used)   2 id
-- Returns 1 or 0 for each queue.
--! keys jobs
local found = {}
for i, key in ipairs(KEYS) do
    found[i] = redis.call('HEXISTS', key, ARGV[2])
end
return found
