-- How scripts read a record (serialization/record.py).  Python makes the records; scripts only insert times (enqueue)
-- and combine two records (lib/jobs/edited.lua).

local decoded = {} -- one call reads many jobs of one type, whose controls are the same text
local start, same = '', nil -- the first four lines of the last record, and the controls in them

-- The controls as a table, which must not be changed; nil if there are none or they cannot be read (the worker that
-- gets the job will report it).
local function controls_of(record)
    if same and record and string.sub(record, 1, #start) == start then
        return same
    end
    if not record or not string.find(record, '^[+=<]') then
        return nil
    end
    local head, line = string.match(record, '^([+=<][^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)\n)')
    line = line or ''
    if decoded[line] == nil then
        local ok, controls = pcall(cjson.decode, line)
        if ok and type(controls) == 'table' then
            local key = controls.limit_key -- as it is stored in slots and blocked, where NUL is the separator
            controls.limit_key = type(key) == 'string' and string.gsub(key, '%z', '') or nil
        end
        decoded[line] = ok and type(controls) == 'table' and controls
    end
    start, same = head or '', decoded[line] or nil
    return same
end

-- May the record have controls that matter when the job starts?
local function has_terms(record)
    local flag = string.byte(record, 1)
    return flag == 43 or flag == 60
end

local limits = {} -- first line → its limit

-- The controls that matter when the job starts (a limit alone is in the first line); nil if none of them matters,
-- false if there are none.
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

-- The identity of the job's type, under which everything is that its jobs share: the type's oldest name, which the
-- options have if it is not the name in the record.
local function type_of(record)
    local name, options = string.match(record, '^[^\n]*\n([^\n]*)\n([^\n]*)\n')
    return options and options ~= '' and string.match(options, '[{,]"type":"([^"\\]+)"') or name or ''
end

-- When the job was enqueued (ms); 0 = the record cannot be read.
local function enqueued_at(record)
    return tonumber(string.match(record or '', '^[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n(%d+)\n')) or 0
end

local function limit_key(controls)
    return controls and controls.limit_key
end
