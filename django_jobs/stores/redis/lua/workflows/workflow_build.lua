-- workflow_build: writes a part of a new workflow.  The field `kind` comes with the last part: a workflow without it is
-- not there yet.  A part that arrives after the last one changes nothing.
--
-- KEYS  1 the workflow
-- ARGV  1 clock   then field, value, …
--
-- Returns 1.
--! use clock
local flow = KEYS[1]
if redis.call('HEXISTS', flow, 'kind') == 1 then
    return 1
end
local fields = {}
for i = 2, #ARGV do
    fields[i - 1] = ARGV[i]
end
redis.call('HSET', flow, unpack(fields))
redis.call('HSET', flow, 'touched', string.format('%.0f', now))
return 1
