-- The attempts log and the counts of failures and crashes.
--! on demand
--! keys attempts tries

-- A JSON object made by Python, with the server's time.
local function signed(line)
    return '{"at":' .. string.format('%.0f', now) .. ',' .. string.sub(line, 2)
end

-- An attempt as a call has it: the JSON object, and the signature of the error.
local function parts_of_attempt(text)
    return string.match(text, '^([^\n]*)\n(.*)$')
end

-- The log of a job (false: it has none) with this line at its end.
local function with_line(log, line)
    local KEPT_LINES = 25
    if not log then
        return line
    end
    local _, lines = string.gsub(log, '\n', '')
    if lines >= KEPT_LINES - 1 then
        log = string.sub(log, (string.find(log, '\n', 1, true)) + 1)
    end
    return log .. '\n' .. line
end

local function log_attempt(id, line)
    redis.call('HSET', attempts, id, with_line(redis.call('HGET', attempts, id), signed(line)))
end

-- The line of an attempt whose worker did not report its end, with the attempt's number and its worker.
local function line_of(line, number, holder)
    local quoted = string.gsub(holder, '[%c"\\]', function(char)
        return string.format('\\u%04x', string.byte(char))
    end)
    return '{"attempt":' .. string.format('%.0f', number) .. ',"worker":"' .. quoted .. '",' .. string.sub(line, 2)
end

-- A value of `tries`: failures, crashes, parked since, and whether all processes of a worker that held the job died.
local function read_tries(tried)
    local failures, crashes, parked = string.match(tried or '', '^(%d+):(%d+):(%d+)$')
    local suspect = crashes and string.find(crashes, '^0%d') ~= nil
    return tonumber(failures) or 0, tonumber(crashes) or 0, tonumber(parked) or 0, suspect
end

local function get_tries(id)
    return read_tries(redis.call('HGET', tries, id))
end

-- The crashes of a suspect begin with a zero, and so do the failures of a job that has begun (a job that was only
-- parked has not).  A reader that needs only the numbers can ignore the zeros.
local function text_of_tries(failures, crashes, parked, suspect, only_parked)
    local begun, suspected = only_parked and '' or '0', suspect and '0' or ''
    return string.format('%s%.0f:%s%.0f:%.0f', begun, failures, suspected, crashes, parked)
end

local function set_tries(id, ...)
    redis.call('HSET', tries, id, text_of_tries(...))
end

local function has_begun(tried)
    local failures, crashes = string.match(tried or '', '^(%d+):(%d+):')
    return failures and (#failures > 1 or failures + crashes > 0)
end

-- Only jobs that have not begun expire: an attempt of this job has begun, or a person wants it to run.
local function never_expires(id, controls)
    if controls and controls.expires_at then
        set_tries(id, get_tries(id))
    end
end
