-- series: the events of the last minutes, added up over one queue or several queues
--
-- KEYS  minutes of each queue   ARGV  1 clock   2 since (ms, start of a minute, not more than two hours ago)   then events
-- Returns {{field, sum, field, sum…}}; a field without a number in any queue is left out.
--! use clock
--! keys minutes
local fields, sums = {}, {}
for minute = tonumber(ARGV[2]), now, 60000 do
    for i = 3, #ARGV do
        fields[#fields + 1] = string.format('%.0f:', minute) .. ARGV[i]
    end
end
for _, key in ipairs(KEYS) do
    for i, number in ipairs(#fields > 0 and redis.call('HMGET', key, unpack(fields)) or {}) do
        number = number and tonumber(number)
        if number then
            sums[i] = (sums[i] or 0) + number
        end
    end
end
local flat = {}
for i, field in ipairs(fields) do
    if sums[i] then
        flat[#flat + 1] = field
        flat[#flat + 1] = string.format('%.0f', sums[i])
    end
end
return {flat}
