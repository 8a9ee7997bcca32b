-- over: a remote worker has ended an attempt that was killed: what the attempt held is free
--
-- Arguments: id, token ("" = of the last attempt that was killed).
-- Returns 1, or 0 if nothing waited for the end of that attempt.
--! answers number
--! args id token
--! use claim_end
local value = redis.call('HGET', stops, id)
local _, killed = killed_attempt(value)
if not killed or (token ~= '' and token ~= killed) then
    return reply(0)
end
let_go(id, value)
return reply(1, true)
