-- recover: the claims of a lost worker → queued (to run alone), dead or cancelled; counted as crashes;
-- with "release", the claims of a worker that was stopped → queued, not counted
--
-- ARGV  1 clock   2 channel   3 number   4 "recover" | "release"
--       5 worker that has the claims ("" = any whose lease has expired)   6 number of crashes at which a job is dead
--       7 attempt (JSON, without number and worker), newline, signature, newline, what is remembered of the error   8 most jobs in the backlog, or ""
--       9 "last": the worker has no other claims   then the ids
--
-- If the lease has expired, all processes of the worker are gone, and any of its jobs may have been the cause: they become
-- suspects.  A worker runs one suspect at a time.  The last crash of a job is counted only if the job had begun alone
-- on its worker: see `begin`.
--
-- Returns for each job that moved, flat: id, record, state, crashes, attempt, claimed ms, ms now, ms since when it could
-- run before that (0 = the time in its record), holder.
--! answers own
--! use claim_end count finish log since bytes locker errors
--! keys scheduled retry
local releasing, worker, max_crashes = ARGV[4] == 'release', ARGV[5], tonumber(ARGV[6])
local attempt, signature, note = parts_of_attempt(ARGV[7])
local archiving, last = tonumber(ARGV[8]), ARGV[9] == 'last'
local out, told, bytes, failures = {}, {}, 0, {}
local front -- all returned jobs get the same score; the order is then by id, which is the order of age

local function tell(id, record, ...)
    bytes = bytes + #record
    out[#out + 1] = id
    out[#out + 1] = record
    for _, value in ipairs({...}) do
        out[#out + 1] = value
    end
    told[#told + 1] = table.concat({id, ...}, '\t')
end

local before = answered()
if before then
    for _, line in ipairs(lines_of(before)) do
        local id, rest = string.match(line, '^([^\t]*)\t(.*)$')
        tell(id, redis.call('HGET', jobs, id) or '', string.match(rest, string.rep('([^\t]*)\t', 6) .. '(.*)$'))
    end
    return out
end

-- May this claim be taken away?  Yes if its holder is the dead worker, or the holder's lease has expired.
local function lost(holder)
    if worker ~= '' then
        return holder == worker
    end
    local ends = redis.call('ZSCORE', leases, holder)
    return ends and tonumber(ends) <= now
end

local function take(id, claim, holder)
    local record = redis.call('HGET', jobs, id)
    local controls = controls_of(record)
    local stopped = end_claim(id, claim, controls)
    local tried = redis.call('HGET', tries, id)
    local counts = read_tries(tried)
    local number, claimed = number_of(counts), string.match(claim, '^[^:]*:(%d+):') or '0'
    local line = line_of(attempt, number, holder)
    local once = controls and controls.at_most_once
    local waited = string.format('%.0f', math.abs(tonumber(since_of({id})[1] or 0)))
    local function moved(state)
        local at = string.format('%.0f', now)
        tell(id, record or '', state, tostring(counts.crashes), tostring(number), claimed, at, waited, holder)
    end
    local is_last = counts.crashes > 0 and counts.crashes + 1 >= max_crashes
    local innocent = not once and (waits_to_begin(tried) or (is_last and worker == '' and not counts.suspect))
    if not releasing or once then
        counts.crashes = counts.crashes + (innocent and 0 or 1)
        counts.suspect = counts.suspect or worker == ''
        set_tries(id, counts)
        count('recovered', 1)
        if not innocent then
            failures[#failures + 1] = {signature = signature, note = note, record = record}
        end
    end
    if once or (not releasing and not innocent and counts.crashes >= max_crashes) then
        bury(id, record, controls, line, signature, archiving, holder)
        moved('dead')
        return
    end
    if releasing then
        never_expires(id, controls)
    elseif not innocent then
        log_attempt(id, line)
    end
    if stopped then
        if releasing or innocent then
            use_number(id)
        end
        finish('cancelled', id, record, controls, archiving, holder)
        moved('cancelled')
        return
    end
    front = front or -next_number(1)
    wait_again(id, controls, front, counts.crashes > 0 and (counts.suspect and 'suspect' or 'alone'))
    moved('queued')
end

local holders = {}
for i = 10, #ARGV do
    if bytes >= MOST_BYTES then -- the caller continues with the rest
        last = false
        break
    end
    local id = ARGV[i]
    local claim = redis.call('HGET', claims, id)
    local holder = claim and string.match(claim, '^[^:]*:[^:]*:(.*)$')
    if claim and not holder then -- unreadable: no worker can hold it
        holder = ''
        take(id, claim, holder)
    elseif holder and lost(holder) then
        take(id, claim, holder)
        holders[holder] = true
    end
end
remember_errors(failures)
if last then
    if worker ~= '' then
        holders[worker] = true
    end
    for holder in pairs(holders) do
        redis.call('ZREM', leases, holder)
        redis.pcall('HDEL', holdings, holder)
    end
    still_ending(holders)
    -- The lost worker may have taken a wake-up token, or have waited for jobs that are due.
    if redis.call('EXISTS', queued, scheduled, retry, blocked) > 0 then
        wake_up(wake)
    end
    if redis.call('EXISTS', alone, scheduled, retry, blocked) > 0 then
        wake_up(wake_alone)
    end
end
reply_ids(told)
return out
