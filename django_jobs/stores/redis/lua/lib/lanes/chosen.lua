-- Claims of remote workers: only jobs of some names, which may stand anywhere in a lane.  Jobs of other names stay where
-- they are.  A record without lines cannot be read: it is taken, too, so that people learn of it.
--! keys jobs
--! use record bytes
local chosen_from
do
    local LOOKED_AT, STEP = 500, 50 -- jobs that one call looks at; jobs read at once
    local names, looked, seen_bytes = {}, 0, 0

    -- `text`: a name a line.  Returns the ids of the first jobs with these names from `rank` on, at most `want`; and the
    -- rank to continue at when they have left the lane, -1 at its end.
    chosen_from = function(place, text, want, rank)
        for name in string.gmatch(text, '[^\n]+') do
            names[name] = true
        end
        local chosen = {}
        while #chosen < want and looked < LOOKED_AT and seen_bytes < MOST_BYTES do
            local ids = redis.call('ZRANGE', place, rank + #chosen, rank + #chosen + STEP - 1)
            if #ids == 0 then
                return chosen, -1
            end
            for i, record in ipairs(redis.call('HMGET', jobs, unpack(ids))) do
                looked = looked + 1
                seen_bytes = seen_bytes + #(record or '')
                local is_meant = record and (names[name_of(record)] or not string.find(record, '\n'))
                if is_meant and #chosen < want then
                    chosen[#chosen + 1] = ids[i]
                elseif #chosen < want then
                    rank = rank + 1
                end
            end
        end
        return chosen, rank
    end
end
