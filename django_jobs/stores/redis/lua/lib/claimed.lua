-- What a claim was told, as it is kept: its token, then a line for each job, "+id" of those it got, "-id" of expired ones.
--! keys claims jobs

-- Its token, the ids that are still held under it, the expired ones with their records (flat), and when it was made (ms).
local function claimed_before(text)
    local token, list = string.match(text, '^(%d*)\n(.*)$')
    local ids, gone, at = {}, {}, 0
    for mark, id in string.gmatch(list or '', '([+-])([^\n]+)') do
        if mark == '-' then
            gone[#gone + 1] = id
            gone[#gone + 1] = redis.call('HGET', jobs, id) or ''
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
