-- find: is there a job with this id?
--
-- KEYS  jobs and remembered of each queue   ARGV  1 clock (not used)   2 id
-- Returns for each queue 1 if it has the job, 2 if the job has left it for another queue, or else 0.
--! keys jobs remembered
local found = {}
for i = 1, #KEYS, 2 do
    local has = redis.call('HEXISTS', KEYS[i], ARGV[2])
    local entry = has == 0 and redis.call('HGET', KEYS[i + 1], ARGV[2])
    found[#found + 1] = entry and string.find(entry, ':>', 1, true) and 2 or has
end
return found
