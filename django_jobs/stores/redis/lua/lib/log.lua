-- The attempts log and the counts of failures and crashes.
--! keys attempts tries

-- `line` is a JSON object made by Python; the time is the server's.
local function log_attempt(id, line)
    local KEPT_LINES = 25
    local entry = '{"at":' .. string.format('%.0f', now) .. ',' .. string.sub(line, 2)
    local old = redis.call('HGET', attempts, id)
    if old then
        local _, lines = string.gsub(old, '\n', '')
        if lines >= KEPT_LINES - 1 then
            old = string.sub(old, (string.find(old, '\n', 1, true)) + 1)
        end
        entry = old .. '\n' .. entry
    end
    redis.call('HSET', attempts, id, entry)
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
local function set_tries(id, failures, crashes, parked, suspect, only_parked)
    local begun, suspected = only_parked and '' or '0', suspect and '0' or ''
    redis.call('HSET', tries, id, string.format('%s%.0f:%s%.0f:%.0f', begun, failures, suspected, crashes, parked))
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
