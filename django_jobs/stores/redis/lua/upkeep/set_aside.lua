-- set_aside: renames a key that has the wrong type, unless it has gone or changed since the survey
--
-- KEYS  1 the key   2 its other name
-- Arguments: expected (the type that the key should have).
-- Returns 1, or 0 if nothing is wrong with the key.
--! args expected
local kind = redis.call('TYPE', KEYS[1]).ok
if kind == 'none' or kind == expected then
    return 0
end
redis.call('RENAME', KEYS[1], KEYS[2])
return 1
