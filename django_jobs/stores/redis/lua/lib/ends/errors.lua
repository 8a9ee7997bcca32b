-- The errors of failed attempts, remembered beyond their jobs: `errors` maps the signature of an error to what is known of
-- it.  The first line is "first ms, last ms, number of attempts, release of the first, a JSON object made by Python", separated
-- by tabs.  Each further line is "letter, first ms, last ms, number, text": d and a day (UTC), r and a release, t and a job type, m and a
-- message, in no order.  Of each letter the latest ones are kept.  Lines that cannot be read stay, and have no effect.
--
-- A call that lets many attempts fail reads and writes each error once.  No transition depends on it: a key of another type,
-- or a value that cannot be read, must not keep a job from failing.
--! on demand
--! keys errors
--! use clock record count

local MOST_ERRORS, ROOM = 500, 100 -- errors of a queue; if a new one has no room, the oldest make room for so many
local LATEST_OF = {d = 30, r = 5, t = 10, m = 5}
local LONGEST_MEMORY = 32768 -- bytes; a longer value is not ours

-- When the error was first seen, the number of attempts, the release of the first, and the other lines, each with a newline
-- at both ends; nil for a value that cannot be read.
local function read_memory(text)
    if text and #text <= LONGEST_MEMORY then
        local first, number, release, lines = string.match(text .. '\n', '^(%d+)\t%d+\t(%d+)\t([^\t\n]*)\t[^\n]*(\n.*)$')
        if first and #first <= 15 and #number <= 15 then
            return tonumber(first), tonumber(number), release, lines
        end
    end
end

-- The lines in which this has come `n` times more.  Only its own line is read: after a month, there are fifty.
local function with_part(lines, letter, key, n)
    local LONGEST_NUMBERS = 52 -- bytes before the key
    local needle, at = '\t' .. key .. '\n', 0
    repeat
        at = string.find(lines, needle, at + 1, true)
        local from = at and math.max(1, at - LONGEST_NUMBERS)
        local start, first, number = string.match(
            at and string.sub(lines, from, at - 1) or '', '()\n' .. letter .. '\t(%d+)\t%d+\t(%d+)$')
        if start then
            return string.sub(lines, 1, from + start - 1)
                .. string.format('%s\t%s\t%.0f\t%.0f', letter, first, now, tonumber(number) + n) .. string.sub(lines, at)
        end
    until not at
    lines = lines .. string.format('%s\t%.0f\t%.0f\t%.0f', letter, now, now, n) .. needle
    local number, oldest, first, last = 0, math.huge, nil, nil
    for start, seen, stop in string.gmatch(lines, '\n()' .. letter .. '\t%d+\t(%d+)\t[^\n]*()') do
        number = number + 1
        if tonumber(seen) < oldest then
            oldest, first, last = tonumber(seen), start, stop
        end
    end
    return number > LATEST_OF[letter] and string.sub(lines, 1, first - 1) .. string.sub(lines, last + 1) or lines
end

-- Forget the errors that were not seen for longest, and count them: pages say that there were more.
local function make_room_for_errors()
    local flat, times = redis.call('HGETALL', errors), {}
    for i = 1, #flat, 2 do
        local last = #flat[i + 1] <= LONGEST_MEMORY and string.match(flat[i + 1], '^%d+\t(%d+)\t')
        times[#times + 1] = {flat[i], last and #last <= 15 and tonumber(last) or 0}
    end
    table.sort(times, function(one, other)
        return one[2] < other[2] or (one[2] == other[2] and one[1] < other[1])
    end)
    for i = 1, #times - MOST_ERRORS + ROOM do
        redis.call('HDEL', errors, times[i][1])
        count('errors_forgotten', 1)
    end
end

local function try_to_remember(list)
    local met = {}
    for _, each in ipairs(list) do
        local seen = met[each.signature]
        if not seen then
            seen = {number = 0, r = {}, m = {}, t = {}}
            met[each.signature] = seen
        end
        -- what Python sends of an attempt: release, message, head
        local release, message, head = string.match(each.note, '^([^\t\n]*)\t([^\t\n]*)\t([^\n]*)$')
        seen.number, seen.head, seen.release = seen.number + 1, head or '{}', release or ''
        local name = string.match(type_of(each.record or ''), '^[^\t\n]*')
        for letter, key in pairs({r = release, m = message, t = name}) do
            local keys = seen[letter]
            if keys[key] then
                keys[key] = keys[key] + 1
            elseif key ~= '' and #keys < LATEST_OF[letter] then
                keys[#keys + 1], keys[key] = key, 1
            end
        end
    end
    for signature, seen in pairs(met) do
        local before = redis.call('HGET', errors, signature)
        local first, number, release, lines = read_memory(before)
        lines = with_part(lines or '\n', 'd', string.format('%d', math.floor(now / 86400000)), seen.number)
        for _, letter in ipairs({'r', 't', 'm'}) do
            for _, key in ipairs(seen[letter]) do
                lines = with_part(lines, letter, key, seen[letter][key])
            end
        end
        if not before and redis.call('HLEN', errors) >= MOST_ERRORS then
            make_room_for_errors()
        end
        local numbers = string.format('%.0f\t%.0f\t%.0f\t', first or now, now, (number or 0) + seen.number)
        lines = numbers .. (release or seen.release) .. '\t' .. seen.head .. string.sub(lines, 1, -2)
        redis.call('HSET', errors, signature, lines)
    end
end

-- These attempts failed; each has `signature`, `note` (nil: it is not remembered) and `record`.
local function remember_errors(list)
    local noted = {}
    for _, each in ipairs(list) do
        if each.note and each.note ~= '' and each.signature then
            noted[#noted + 1] = each
        end
    end
    if #noted > 0 then
        pcall(try_to_remember, noted)
    end
end
