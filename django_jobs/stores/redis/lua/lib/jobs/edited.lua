-- Gives a waiting job other arguments, with all consequences.
--! keys jobs queued alone blocked waits
--! use record places ready

-- The fields of a controls line as text: their names in order, and name → text.  Nothing is decoded, because Lua would
-- write long numbers differently.
local function fields_of(line)
    local names, values, at = {}, {}, 2
    while true do
        local name, from = string.match(line, '^"([%l_]+)":()', at)
        if not name then
            return names, values
        end
        local to
        if string.sub(line, from, from) == '"' then
            to = from + 1
            while to and string.sub(line, to, to) ~= '"' do
                to = string.find(line, '["\\]', string.sub(line, to, to) == '\\' and to + 2 or to + 1)
            end
            to = to and to + 1
        else
            to = string.find(line, '[,}]', from)
        end
        if not to then
            return names, values
        end
        names[#names + 1], values[name] = name, string.sub(line, from, to - 1)
        at = to + 1
    end
end

-- The line with the fields `wanted` replaced by those of the other line.
local function with_fields(line, other, wanted)
    local names, values = fields_of(line)
    local _, new = fields_of(other)
    local parts = {}
    for _, name in ipairs(wanted) do
        if not values[name] then
            names[#names + 1] = name
        end
        values[name] = new[name]
    end
    for _, name in ipairs(names) do
        if values[name] then
            parts[#parts + 1] = '"' .. name .. '":' .. values[name]
        end
    end
    return #parts > 0 and '{' .. table.concat(parts, ',') .. '}' or ''
end

-- When somebody asked for the arguments of a record: when it was enqueued, unless its controls say another time.
local function asked_at(record)
    local controls = controls_of(record)
    return controls and tonumber(controls.asked_at) or enqueued_at(record)
end

local function with_asked_at(record, at)
    local head, line, rest = string.match(record, '^([^\n]*\n[^\n]*\n[^\n]*\n)([^\n]*)(\n.*)$')
    return head and head .. with_fields(line, string.format('{"asked_at":%.0f}', at), {'asked_at'}) .. rest or record
end

-- The old record with the arguments of the new one (its rest), their time, and its limit, which depends on them; also
-- with its expiry if the start moves.
local function with_arguments(old, new, moves)
    local HEAD = '^[^\n]*\n([^\n]*\n[^\n]*\n)([^\n]*)(\n[^\n]*\n[^\n]*\n)()'
    local types, line, about = string.match(old, HEAD)
    local _, other, _, rest = string.match(new, HEAD)
    if not types or not rest then
        return new
    end
    local follow = {'limit_key', 'limit', 'asked_at', moves and 'expires_at' or nil}
    line = with_fields(line, other, follow)
    return (line == '' and '-\n' or '+\n') .. types .. line .. about .. string.sub(new, rest)
end

-- A job that waits in that state has other controls now.  If it waited for its old limit, it is queued in its turn.
local function limit_follows(id, state, before, after)
    if limit_key(before) == limit_key(after) then
        return
    end
    local member = redis.call('HGET', waits, id)
    local _, score, lane, key = parts_of(member or '')
    if key and key == limit_key(before) then
        back_to_lane(id, score, lane)
        note_since({now, id})
        unblock(id)
        wake_up(wake)
        wake_up(wake_alone)
    elseif state == 'queued' and limit_key(before) then
        admit(limit_key(before), 1) -- it may have been let in for a slot that it will not use now
    end
end
