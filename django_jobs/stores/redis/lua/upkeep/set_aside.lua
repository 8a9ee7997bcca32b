-- set_aside: renames a key that has the wrong type, unless it has gone or changed since the survey
--
-- KEYS  1 the key   2 its other name
-- ARGV  1 clock (not used)   2 the type that it should have
-- Returns 1, or 0 if nothing is wrong with the key.
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == ARGV[2] then
    return 0
end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
