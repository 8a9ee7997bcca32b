-- lost: holders whose lease has expired, at most a thousand
--
-- ARGV  1 clock   2 "remote": remote holders; "": the others
-- Returns the server's time, then each holder with the end of its lease (ms), flat.
--! use clock
--! keys leases
local outside, out = ARGV[2] == 'remote', {now}
for page = 0, 49 do -- many holders of one kind must not hide the other kind
    local ended = redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'WITHSCORES', 'LIMIT', page * 1000, 1000)
    for i = 1, #ended, 2 do
        if (string.sub(ended[i], 1, 7) == 'remote:') == outside and #out <= 2000 then
            out[#out + 1], out[#out + 2] = ended[i], ended[i + 1]
        end
    end
    if #ended < 2000 or #out > 2000 then
        break
    end
end
return out
