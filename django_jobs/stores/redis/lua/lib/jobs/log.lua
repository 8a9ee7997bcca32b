-- The attempts log and the counts of failures and crashes.
--! on demand
--! keys attempts tries expiries
--! use lastline

-- A JSON object made by Python, with the server's time.
local function signed(line)
    return '{"at":' .. string.format('%.0f', now) .. ',' .. string.sub(line, 2)
end

-- An attempt as a call has it: the JSON object, the signature of the error, and what is remembered of it (lib/ends/errors.lua).
local function parts_of_attempt(text)
    return string.match(text, '^([^\n]*)\n([^\n]*)\n?(.*)$')
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

-- A value of `tries` is "failures:crashes:parked:earlier": parked since (ms), and the number of the last attempt before a
-- person let the job run again (left out if it is 0).  The crashes of a suspect, a job that was held by a worker all of
-- whose processes died, begin with a zero; so do the failures of a job that has begun (one that was only parked has not).
local function read_tries(tried)
    local failures, crashes, parked, earlier = string.match(tried or '', '^(%d+):(%d+):(%d+):?(%d*)$')
    return {
        failures = tonumber(failures) or 0, crashes = tonumber(crashes) or 0, parked = tonumber(parked) or 0,
        earlier = tonumber(earlier) or 0, suspect = crashes and string.find(crashes, '^0%d') ~= nil,
    }
end

local function get_tries(id)
    return read_tries(redis.call('HGET', tries, id))
end

-- The number of the attempt that runs, or would run next.
local function number_of(tried)
    return tried.earlier + tried.failures + tried.crashes + 1
end

local function text_of_tries(tried, only_parked)
    local begun, suspected = only_parked and '' or '0', tried.suspect and '0' or ''
    local text = string.format('%s%.0f:%s%.0f:%.0f', begun, tried.failures, suspected, tried.crashes, tried.parked)
    return tried.earlier > 0 and text .. string.format(':%.0f', tried.earlier) or text
end

local function set_tries(id, ...)
    redis.call('HSET', tries, id, text_of_tries(...))
end

local function has_begun(tried)
    local failures, crashes = string.match(tried or '', '^(%d+):(%d+):')
    return failures and (#failures > 1 or failures + crashes > 0)
end

-- Is it too late to start this job, which waits?  From then on, it holds no lock, and nobody may change it.
local function is_too_late(id, controls)
    local expires_at = controls and tonumber(controls.expires_at)
    return expires_at and expires_at > 0 and expires_at <= now and not has_begun(redis.call('HGET', tries, id))
end

-- Only jobs that have not begun expire: an attempt of this job has begun, or a person wants it to run.
local function never_expires(id, controls)
    if controls and controls.expires_at then
        set_tries(id, get_tries(id))
        redis.pcall('ZREM', expiries, id)
    end
end

-- The job waits.  If it has not begun and has a time after which it does not start, `expire` finds it then.
local function note_expiry(id, controls)
    local expires_at = controls and tonumber(controls.expires_at)
    if expires_at and not has_begun(redis.call('HGET', tries, id)) then
        redis.pcall('ZADD', expiries, string.format('%.0f', expires_at), id)
    end
end

-- The job ends without a line in its log, although an attempt has begun: the number of that attempt is not used again.
local function use_number(id)
    local tried = get_tries(id)
    tried.earlier = tried.earlier + 1
    set_tries(id, tried)
end

-- A person lets the job, which has ended, run again: failures and crashes are counted from 0, numbers go on.
local function count_anew(id)
    local tried, log = get_tries(id), redis.call('HGET', attempts, id)
    local number = tonumber(string.match(last_line(log) or '', '"attempt":(%d+)')) or 0
    redis.call('HDEL', tries, id)
    local last = math.max(number, number_of(tried) - 1)
    if last > 0 then
        set_tries(id, {failures = 0, crashes = 0, parked = 0, earlier = last}, true)
    end
end

-- A suspect whose next crash would be its last has two zeros in `tries` from its claim until `begin`.
local function waits_to_begin(tried)
    return string.find(tried or '', '^%d+:00%d') ~= nil
end

-- The same for jobs that are claimed: each such suspect is not begun before `begin` says so.  `tried`: the values of `tries`
-- of these jobs, which are changed here too.
local function wait_to_begin(ids, tried, max_crashes)
    for i = 1, #tried do
        local failures, crashes, rest = string.match(tried[i] or '', '^(%d+):0+(%d+):(.*)$')
        if crashes and tonumber(crashes) + 1 >= max_crashes then
            tried[i] = failures .. ':00' .. crashes .. ':' .. rest
            redis.call('HSET', tries, ids[i], tried[i])
        end
    end
end
