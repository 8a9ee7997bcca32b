-- How many jobs with one limit key may run at once: as the job types of the caller say, which are newer than the record.
--! use record

local newest = {} -- name → number, 0 = no limit; false: it is not in `limits`

-- `limits`: a line "name number" for each name of each type that has a limit, after a first line break (registry.limits);
-- "" = as the records say.  `of_all`: the lines are those of all types that the caller knows; others are as the records say.
local function most_of(limits, record, controls, of_all)
    local name = name_of(record)
    if newest[name] == nil then
        local _, at = string.find(limits, '\n' .. name .. ' ', 1, true)
        newest[name] = at and tonumber(string.match(limits, '^%d+', at + 1)) or false
    end
    return newest[name] or (of_all or limits == '') and tonumber(controls and controls.limit) or 0
end
