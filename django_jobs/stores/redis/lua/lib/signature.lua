-- The signature of an error: its class and its message without the parts that vary, as core/signature.py computes it.
--! on demand
local LENGTH, NO_ERROR, ELLIPSIS = 160, '(none)', '\226\128\166'
local SPACE = '[ \t\n\r\v\f]'

-- A pattern that may begin anywhere takes a time that grows with the square of a text: it is for short texts only.
local function without_spaces_before(text)
    return (string.gsub(text, '^' .. SPACE .. '+', ''))
end

local function without_spaces_behind(short)
    return (string.gsub(short, SPACE .. '+$', ''))
end

-- The first LENGTH bytes, without a part of a character.
local function cut(text)
    local last = LENGTH
    if #text <= last then
        return text
    end
    while last > 0 and math.floor(string.byte(text, last + 1) / 64) == 2 do
        last = last - 1
    end
    return string.sub(text, 1, last)
end

-- The end of a long hexadecimal word that begins at this byte: eight digits, then three to six times four digits, each
-- perhaps after a dash.
local function hexadecimal(text, at)
    if at > 1 and string.find(text, '^[%w_]', at - 1) then
        return nil
    end
    local _, last = string.find(text, '^%x%x%x%x%x%x%x%x', at)
    local ends = {}
    while last and #ends < 6 do
        _, last = string.find(text, '^%-?%x%x%x%x', last + 1)
        ends[#ends + 1] = last
    end
    for i = #ends, 3, -1 do
        if not string.find(text, '^[%w_]', ends[i] + 1) then
            return ends[i]
        end
    end
    return nil
end

-- The end of the varying part that begins at this byte, or nil.
local function varying(text, at)
    local quote = string.match(text, '^[\'"]', at)
    if quote then
        return (string.find(text, quote, at + 1, true))
    end
    local last = hexadecimal(text, at)
    if not last then
        last = select(2, string.find(text, '^0x%x+', at))
    end
    if not last then
        last = select(2, string.find(text, '^%d+', at))
        local more = last
        while more do
            last = more
            more = select(2, string.find(text, '^%.%d+', last + 1))
        end
    end
    return last
end

local function without_varying(text)
    local out, at = {}, 1
    while at <= #text do
        local from = string.find(text, '[%x\'"]', at)
        if not from then
            break
        end
        local last = varying(text, from)
        out[#out + 1] = string.sub(text, at, last and from - 1 or from)
        out[#out + 1] = last and ELLIPSIS or ''
        at = (last or from) + 1
    end
    return table.concat(out) .. string.sub(text, at)
end

local function text_of(value)
    return type(value) == 'string' and value or ''
end

local function short_form(text)
    return without_spaces_behind(cut(without_spaces_before(text)))
end

local function signature_in(attempt)
    local kind = string.gsub(text_of(attempt.error_type), '^builtins%.', '')
    kind = short_form(kind ~= '' and kind or text_of(attempt.outcome))
    kind = kind ~= '' and kind or NO_ERROR
    local first = string.match(without_spaces_before(text_of(attempt.error)), '^[^\n]*')
    local message = without_spaces_behind(cut(first))
    local text = message ~= '' and kind .. ': ' .. without_varying(message) or kind
    return short_form(text), short_form(kind .. ': ' .. ELLIPSIS)
end

-- The part of a line that names an error, as entries.py writes it, without the outcome and the traceback; and the time.
-- Nothing inside of a JSON text looks like these ends: it has no quotation mark without a backslash before it.
local function error_in(line)
    local from = string.find(line, ',"error_type":"', 1, true)
    local to = from and string.find(line, ',"traceback":"', from, true)
    local at = to and string.match(line, '^{"at":(%d+),')
    -- With an empty error_type, the outcome counts.
    if at and string.byte(line, from + 15) ~= 34 and string.sub(line, -2) == '"}' then
        return string.sub(line, from + 1, to - 1), tonumber(at)
    end
end

local by_error = {} -- error → its signatures: many jobs of one call fail by the same error
-- The signature of a job whose attempts log ends with this line (nil: it has none), that of all errors of its class, and
-- when it failed (ms, or nil).
local function signature_of(line)
    if not line then
        return NO_ERROR, NO_ERROR, nil
    end
    local text, at = error_in(line)
    local found = text and by_error[text]
    if found then
        return found[1], found[2], at
    end
    local whole = line
    line = text and '{' .. text .. '}' or line
    local ok, attempt = pcall(cjson.decode, line)
    if not ok or type(attempt) ~= 'table' then
        text, attempt = nil, {outcome = 'corrupt', error = whole}
    end
    local signature, class = signature_in(attempt)
    if text then
        by_error[text] = {signature, class}
    end
    return signature, class, at or tonumber(attempt.at)
end
