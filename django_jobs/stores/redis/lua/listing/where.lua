-- where: the records of some jobs, and their places
--
-- ARGV  1 clock (not used)   then ids
-- Returns for each key what it has for each id: values of the three hashes, then scores; nil if there is none.
--! keys jobs claims waits scheduled queued alone retry succeeded kept dead cancelled expired
local found = {}
for i, key in ipairs(KEYS) do
    found[i] = redis.call(i <= 3 and 'HMGET' or 'ZMSCORE', key, unpack(ARGV, 2))
end
return found
