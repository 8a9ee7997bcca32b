-- complete_and_claim: running → succeeded for one job, and queued → running for the next, if nothing else is to be done
--
-- The effects and the kept answers are those of `complete` and then `claim`.  Jobs that run at most once need both for
-- every job, and this takes half of their time: most of it is the time of its commands, so there are few.
--
-- KEYS  the keys below of the queue of the job that ended, then, if that is another one, those of the next job's queue
-- ARGV  1 clock
--       2 channel of `complete`   3 its number   4 channel of `claim`   5 its number
--       6 most jobs in `succeeded`   7 id   8 token   9 name   10 result ("run ms:JSON")   11 run time (ms)
--       12 waiting time (ms)   13 both times, for lib/times.lua
--       14 worker   15 lease (ms)   16 lowest score of the next job   17 how many keys come before those of its queue
--
-- Returns the answer of `claim`.  If anything else is to be done, it changes nothing and returns a number: for how many
-- calls that is likely to stay so; 0 if only `succeeded` has too many.
--! keys answers claims checkins stops waiters succeeded results result_at holdings queued alone wake wake_alone
--! keys paused blocked unknown scheduled retry tries since jobs leases seq
--! use clock count times ready next_due
local OFTEN, ONCE = 20, 1
local id, worker, before = ARGV[7], ARGV[14], tonumber(ARGV[17])

-- Was this call, or a later one of its channel, answered?
local function is_late(channel, number)
    local last = redis.call('HGET', answers, channel)
    return last and tonumber(string.match(last, '^%d+') or 0) >= tonumber(string.match(number, '^%d+'))
end

-- Of the queue of the job that ended.  What is read here and below is also seen to be of the right type: an error after
-- the first write would not undo it.
if redis.call('HGET', claims, id) ~= ARGV[8] .. ':' .. worker or is_late(ARGV[2], ARGV[3]) then
    return ONCE
end
if redis.pcall('HGET', holdings, worker) ~= '\n' .. string.match(ARGV[8], '^%d+') .. '=1\n' then
    return ONCE
end
if redis.call('ZCARD', succeeded) >= tonumber(ARGV[6]) then
    return 0
end
local ended_answers, ended_claims, ended_holdings = answers, claims, holdings
local ended_checkins, ended_stops, ended_waiters = checkins, stops, waiters
local ended_results, ended_result_at, ended_succeeded = results, result_at, succeeded
local has_room = {}
if before > 0 then -- as tell_of_room in lib/claim_end.lua; if the queue is the same, another job takes the place
    has_room = {redis.call('EXISTS', queued) == 1 and wake, redis.call('EXISTS', alone) == 1 and wake_alone}
    -- From here on, of the queue of the next job.
    answers, claims, checkins, stops, waiters, succeeded, results, result_at, holdings, queued, alone, wake, wake_alone,
        paused, blocked, unknown, scheduled, retry, tries, since, jobs, leases, seq = unpack(KEYS, before + 1)
    if redis.call('HLEN', claims) > 0 and redis.pcall('HEXISTS', holdings, worker) ~= 0 then
        return ONCE
    end
end
if is_late(ARGV[4], ARGV[5]) then
    return ONCE
end
local head = redis.call('ZRANGEBYSCORE', alone, ARGV[16], '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local next_id = head[1]
local record = next_id and redis.call('HGET', jobs, next_id)
if not record or tonumber(head[2]) < 0 then -- nothing waits, a dangling reference, or a suspect
    return ONCE
end
-- "=": none of its controls matters at the start.
if not string.find(string.match(record, '^=\n[^\n]*\n[^\n]*\n([^\n]*)\n') or '', '"at_most_once":true', 1, true) then
    return OFTEN
end
local look = -1
if redis.call(
    'EXISTS', ended_checkins, ended_stops, ended_waiters, paused, blocked, unknown, scheduled, retry, tries, since
) > 0 then
    if redis.call('EXISTS', ended_checkins, ended_stops, ended_waiters, paused, blocked, unknown) > 0 then
        return OFTEN
    end
    look = next_due()
    if look == 0 or redis.call('HEXISTS', tries, next_id) == 1 or redis.call('ZSCORE', since, next_id) then
        return ONCE
    end
end
redis.call('ZSCORE', leases, worker)

-- complete
local at = string.format('%d', now)
redis.call('HDEL', ended_claims, id) -- first write: needs no memory
redis.call('ZADD', ended_succeeded, at, id)
redis.pcall('HSET', ended_results, id, ARGV[10])
if string.byte(ARGV[10], -1) ~= 58 then -- ":": it returned None
    redis.call('SET', ended_result_at, at)
end
for _, list in pairs(has_room) do
    if list then
        wake_up(list)
    end
end
count('succeeded:' .. ARGV[9], '1')
count_times(ARGV[13])
count_minute('succeeded', '1')
for event, ms in pairs({run_ms = ARGV[11], wait_ms = ARGV[12]}) do
    if ms ~= '0' then
        count_minute(event, ms)
    end
end

-- claim
redis.call('ZREM', alone, next_id)
local token = string.format('%d', next_number(1))
redis.call('HSET', claims, next_id, token .. ':' .. at .. ':' .. worker)
redis.call('ZADD', leases, string.format('%d', now + tonumber(ARGV[15])), worker)
if before > 0 then
    redis.pcall('HDEL', ended_holdings, worker)
end
redis.pcall('HSET', holdings, worker, '\n' .. token .. '=1\n')
local left = redis.call('ZCOUNT', alone, ARGV[16], '+inf')
if left > 0 or (look > 0 and look < 3000) then -- as in claim.lua
    wake_up(wake_alone)
end

local function kept(number, text)
    return string.match(number, '^%d+') .. ':' .. at .. ':' .. text
end
local completed, claimed = kept(ARGV[3], ''), kept(ARGV[5], token .. '\n+' .. next_id)
if before > 0 then
    redis.call('HSET', ended_answers, ARGV[2], completed)
    redis.call('HSET', answers, ARGV[4], claimed)
else
    redis.call('HSET', answers, ARGV[2], completed, ARGV[4], claimed)
end
return {now, left, look, tonumber(token), {}, {next_id}, {record}, {}, 0, now, {}, -1}
