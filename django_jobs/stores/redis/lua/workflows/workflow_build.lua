-- workflow_build: writes a part of a new workflow.  The field `kind` comes with the last part: a workflow without it is
-- not there yet.  A part that arrives after the last one changes nothing.
--
-- KEYS  1 the workflow
-- Arguments: field, value, …
--
-- Returns 1.
--! answers number
--! args
local flow = KEYS[1]
answers_kept = OF_WORKFLOW
if redis.call('HEXISTS', flow, 'kind') == 1 then
    return reply(1)
end
local fields = {}
for i = FIRST, #ARGV do
    fields[i - FIRST + 1] = ARGV[i]
end
redis.call('HSET', flow, unpack(fields))
redis.call('HSET', flow, 'touched', string.format('%.0f', now))
return reply(1, true)
