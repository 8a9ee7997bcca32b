-- What scripts read of a record (serialization/record.py); they never write one, but for the last line.

local decoded = {} -- one call meets many jobs of one type, whose controls are the same text
local start, same = '', nil -- the first four lines of the last record, and what they say

-- The controls as a table, which nobody may change; nil when there are none or they cannot be read (the worker that gets it will say so).
local function controls_of(record)
    if not record or not string.find(record, '^[+=<]') then
        return nil
    end
    if same and string.sub(record, 1, #start) == start then
        return same
    end
    local head, line = string.match(record, '^([+=<][^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n)')
    line = line or ''
    if decoded[line] == nil then
        local ok, controls = pcall(cjson.decode, line)
        if ok and type(controls) == 'table' then
            local key = controls.limit_key -- as it stands in slots and blocked, where NUL separates
            controls.limit_key = type(key) == 'string' and string.gsub(key, '%z', '') or nil
        end
        decoded[line] = ok and type(controls) == 'table' and controls
    end
    start, same = head or '', decoded[line] or nil
    return same
end

local limits = {} -- first line → what it says

-- The controls that matter where the job starts, of which a limit alone stands in the first line; nil where none of
-- them does, false where there are none.
local function controls_at_start(record)
    local flag = string.byte(record, 1)
    if flag == 60 then
        local line = string.match(record, '^[^\n]*')
        if not limits[line] then
            local most, key = string.match(line, '^<(%d+) (.*)$')
            limits[line] = {limit = tonumber(most), limit_key = key}
        end
        return limits[line]
    end
    if flag == 43 or flag == 61 then
        return flag == 43 and controls_of(record) or nil
    end
    return false
end

local function name_of(record)
    return string.match(record, '^[^\n]*\n([^\n]*)\n') or ''
end

local function limit_key(controls)
    return controls and controls.limit_key
end
