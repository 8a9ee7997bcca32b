-- `now`: the server's clock in ms, or the one a test passes in ARGV[1].
local now = tonumber(ARGV[1])
if now == 0 then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
end
