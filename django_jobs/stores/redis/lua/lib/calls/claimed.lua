-- The kept answer of a claim: its token, then a line for each job, "+id" for a claimed one, "-ms:id" for an expired one
-- (ms: since when it could run).
--! keys claims jobs

-- The token, the ids still held under it, the expired jobs with record and ms (flat), and the time of the claim (ms).
local function claimed_before(text)
    local token, list = string.match(text, '^(%d*)\n(.*)$')
    local ids, gone, at = {}, {}, 0
    for mark, id in string.gmatch(list or '', '([+-])([^\n]+)') do
        if mark == '-' then
            local since, expired = string.match(id, '^(%d+):(.*)$')
            gone[#gone + 1] = expired
            gone[#gone + 1] = redis.call('HGET', jobs, expired) or ''
            gone[#gone + 1] = since
        else
            local claim = redis.call('HGET', claims, id)
            if claim and string.sub(claim, 1, #token + 1) == token .. ':' then
                ids[#ids + 1] = id
                at = tonumber(string.match(claim, '^%d+:(%d+):'))
            end
        end
    end
    return tonumber(token), ids, gone, at
end
