-- lost: holders whose lease has expired, at most a thousand
--
-- ARGV  1 clock   2 "remote": remote holders; "": the others
--! use clock
--! keys leases
local outside, out = ARGV[2] == 'remote', {}
for page = 0, 49 do -- many holders of one kind must not hide the other kind
    local ended = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', page * 1000, 1000)
    for _, holder in ipairs(ended) do
        if (string.sub(holder, 1, 7) == 'remote:') == outside and #out < 1000 then
            out[#out + 1] = holder
        end
    end
    if #ended < 1000 or #out == 1000 then
        break
    end
end
return out
