-- set_aside: a key of another type than ours goes under another name, unless it has gone since it was looked at
--
-- KEYS  1 the key   2 its other name
-- ARGV  1 clock (not used)   2 the type that it should have
-- Returns 1, or 0 when nothing is wrong with it.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == ARGV[2] then
    return 0
end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
