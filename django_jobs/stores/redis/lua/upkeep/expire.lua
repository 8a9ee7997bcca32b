-- expire: waiting → expired: jobs that have not started when their time is over
--
-- Arguments: limit (how many entries to look at), archiving (most jobs in the backlog, or "").
-- Returns {1 if more may be late, otherwise 0; id, record, ms since when it could run (0 = see the record) of each job}
--! answers own
--! args limit:int archiving:int
--! use record closed log places finish since bytes
--! keys expiries expired
local out, told, ended = {}, {}, {}
local before = answered()
if before then
    local more, rest = string.match(before, '^(%d)\n?(.*)$')
    out[1] = tonumber(more)
    for began, id in string.gmatch(rest, '(%d+):([^\n]*)') do
        for _, value in ipairs({id, redis.call('HGET', jobs, id) or '', began}) do
            out[#out + 1] = value
        end
    end
    return out
end

redis.call('ZREM', expiries, '') -- first write: needs no memory; a user that may only add is refused here
redis.call('ZCARD', expired) -- fails on a key of another type, before a job is taken out
local _, _, _, opened = pauses()
local due = redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, limit)
local found = #due
local records = read_records(due, 0)
out[1] = (found == limit or #due < found) and 1 or 0
told[1] = out[1]
for i, id in ipairs(due) do
    local record = records[i]
    local controls = controls_of(record)
    local began = math.max(math.abs(tonumber(since_of({id})[1] or 0)), opened)
    if record and is_too_late(id, controls) and leave_waiting(id) then
        ended[#ended + 1] = {id = id, record = record, controls = controls}
        for _, value in ipairs({id, record, string.format('%.0f', began)}) do
            out[#out + 1] = value
        end
        told[#told + 1] = string.format('%.0f:', began) .. id
    end
end
end_all('expired', ended, archiving)
if #due > 0 then
    redis.call('ZREM', expiries, unpack(due))
end
reply(told, #due > 0)
return out
