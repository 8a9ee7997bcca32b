-- holdings: the claims of one holder; also corrects the holder's numbers in `holdings`
--
-- Arguments: holder.
-- Returns id, claim, record, tries and the result of since_of for each claim, flat.
--! answers again
--! args holder
--! use since
--! keys claims jobs tries holdings leases
local out, counted, lines = {}, {}, {'\n'}
local all = redis.call('HGETALL', claims)
for i = 1, #all, 2 do
    local token, by = string.match(all[i + 1], '^(%d+):[^:]*:(.*)$')
    if by == holder then
        counted[token] = (counted[token] or 0) + 1
        out[#out + 1] = all[i]
        out[#out + 1] = all[i + 1]
        out[#out + 1] = redis.call('HGET', jobs, all[i]) or ''
        out[#out + 1] = redis.call('HGET', tries, all[i]) or ''
        out[#out + 1] = since_of({all[i]})[1] or '0'
    end
end
redis.call('ZREM', leases, '') -- first write: needs no memory
for token, n in pairs(counted) do
    lines[#lines + 1] = token .. '=' .. string.format('%d', n) .. '\n'
end
table.sort(lines)
if #lines > 1 then
    redis.pcall('HSET', holdings, holder, table.concat(lines))
else
    redis.pcall('HDEL', holdings, holder)
end
return reply_again(out)
