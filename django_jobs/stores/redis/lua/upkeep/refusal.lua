-- refusal: the error that the server gives to every write now, or ""; changes nothing
--
-- ARGV  1 clock (not used)
--! keys leases
local answer = redis.pcall('ZREM', leases, '')
local text = type(answer) == 'table' and answer.err or ''
for _, code in ipairs({'READONLY', 'MISCONF', 'NOREPLICAS'}) do
    local at = string.find(text, code, 1, true)
    if at then
        return string.sub(text, at)
    end
end
return ''
