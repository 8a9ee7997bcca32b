-- survey: is there anything to repair?  A single call, so that a healthy queue costs almost nothing.
--
-- ARGV  1 clock   then the type that each key should have, in the order of KEYS
-- Returns {keys of another type, sizes of the keys (-1 for one of another type or without a size), how many dead jobs the
--          index of failed jobs has by their errors, and how many that wait for a retry}
--! keys unknown offer offer_alone
--! keys jobs queued alone since scheduled retry claims leases blocked waits slots succeeded kept dead cancelled expired
--! keys tries attempts results checkins stops unique fired remembered remembered_at returned returned_before result_at trimmed_to paused
--! keys recent recent_before answers totals minutes times timed seq wake wake_alone archive archiver checker holdings waiters ends notes reading end_calls
--! keys failures grouped error_groups tag_groups errors expiries samples
local SIZE = {hash = 'HLEN', zset = 'ZCARD', list = 'LLEN'}
local wrong, sizes = {}, {}
for i, key in ipairs(KEYS) do
    local kind, expected = redis.call('TYPE', key).ok, ARGV[i + 1]
    sizes[i] = -1
    if kind == 'none' then
        sizes[i] = 0
    elseif kind ~= expected then
        wrong[#wrong + 1] = key
    elseif SIZE[kind] then
        sizes[i] = redis.call(SIZE[kind], key)
    end
end
-- Read in the call that reads the sizes: jobs that fail between two calls would look like an error in the index.
local indexed = {0, 0}
if redis.call('TYPE', failures).ok == 'zset' then
    indexed = {redis.call('ZLEXCOUNT', failures, '[d', '(e'), redis.call('ZLEXCOUNT', failures, '[r', '(s')}
end
return {wrong, sizes, indexed}
