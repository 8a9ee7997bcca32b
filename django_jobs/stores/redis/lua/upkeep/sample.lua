-- sample: write down what was added to the totals of one queue or several queues, unless it was done in these five minutes
--
-- KEYS  hours, bases and totals of each queue   ARGV  1 clock   2 job types that are counted at most   3 bytes that the
--       name of one has at most   then twice a width and for how long its numbers are kept (ms): five minutes, an hour
-- Returns nothing: whoever calls it, and however often, the numbers are those of now.
--! use clock
--! keys hours bases totals
local EVENTS = {succeeded = 1, failed = 2, dead = 3}
local MOST, LONGEST, FINE = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local HOUR, KEPT = tonumber(ARGV[6]), tonumber(ARGV[7])

local FIVE, EIGHT = '^(%d+)' .. string.rep(' (%d+)', 4) .. '$', '^(%d+)' .. string.rep(' (%d+)', 7) .. '$'

-- The numbers of a field; {} if there is none, or another program has stored something else.
local function numbers_of(text, pattern)
    local found = {string.match(text or '', pattern)}
    for i, part in ipairs(found) do
        found[i] = tonumber(part)
    end
    return found
end

local function joined(numbers)
    return string.format('%.0f' .. string.rep(' %.0f', #numbers - 1), unpack(numbers))
end

-- The totals of each job type, and under '' those of the queue: {succeeded, failed, dead}.
local function totals_of(key)
    local all, flat = {[''] = {0, 0, 0}}, redis.call('HGETALL', key)
    for i = 1, #flat, 2 do
        local event, name = string.match(flat[i], '^(%l+):?(.*)$')
        local at, count = EVENTS[event], tonumber(string.match(flat[i + 1], '^%d+$') or 0)
        if at == 1 then -- counted by name only
            all[''][1] = all[''][1] + count
        end
        if at and #name <= LONGEST and (at > 1 or name ~= '') then
            all[name] = all[name] or {0, 0, 0}
            all[name][at] = count
        end
    end
    return all
end

-- The bases by name, each with the totals at the beginning of the five minutes and of the hour, since when its numbers are
-- known and when they last changed; and their number.  nil if they cannot be read or a total has become smaller.
local function bases_of(key, at, totals)
    local found, size, flat = {}, 0, redis.call('HGETALL', key)
    local sound = #at == 5 and at[1] <= now and at[2] <= now and math.min(at[3], at[4]) >= now - KEPT - HOUR
    for i = 1, #flat, 2 do
        local name = string.match(flat[i], '^of:(.*)$')
        if name then
            local base, total = numbers_of(flat[i + 1], EIGHT), totals[name]
            sound = sound and total and #base == 8
            for j = 1, 6 do
                sound = sound and base[j] <= total[(j - 1) % 3 + 1]
            end
            found[name], size = base, size + 1
        end
    end
    return sound and at[3] <= now and at[4] <= now and found[''] and found or nil, size
end

-- A job type that had no job for as long as numbers are kept; nil if there is none.
local function idle(bases, totals)
    for name, base in pairs(bases) do
        local a, b, c = unpack(totals[name])
        if name ~= '' and base[8] < now - KEPT and a == base[4] and b == base[5] and c == base[6] then
            return name
        end
    end
    return nil
end

-- Give job types without a base one, the busiest first.  If there are too many, an idle one gives way.
local function admit(key, at, bases, size, totals, begun)
    local new, known = {}, not begun and at[5] == 0 -- there was no such type at the last look
    for name, total in pairs(totals) do
        total.sum = total[1] + total[2] + total[3]
        new[#new + 1] = not bases[name] and name or nil
    end
    table.sort(new, function(a, b)
        local x, y = totals[a].sum, totals[b].sum
        return x > y or x == y and a < b
    end)
    for _, name in ipairs(new) do
        if size > MOST then
            at[5] = 1
            local gone = idle(bases, totals)
            if not gone then
                break
            end
            redis.call('HDEL', key, 'of:' .. gone)
            bases[gone], size = nil, size - 1
        end
        local a, b, c = unpack(totals[name])
        bases[name] = known and {0, 0, 0, 0, 0, 0, 0, now, new = true} or {a, b, c, a, b, c, now, now, new = true}
        size = size + 1
    end
end

-- End the five minutes (which = 1) or the hour (2) that is open: write down what was added.
local function close(hours, names, at, bases, totals, which)
    local width, kept = tonumber(ARGV[2 + 2 * which]), tonumber(ARGV[3 + 2 * which])
    local slot, open, kind = math.floor(now / width) * width, at[2 + which], string.format('%d:', width / 60000)
    if open > 0 and (slot == open or now - slot > width / 10) then
        return -- nobody knows which of the jobs of a late look ended before its width began: the stretch goes on
    end
    at[2 + which] = slot
    local rows = {}
    for name, base in pairs(bases) do
        local total, first = totals[name], 3 * which - 2
        local added = {total[1] - base[first], total[2] - base[first + 1], total[3] - base[first + 2]}
        if added[1] + added[2] + added[3] > 0 then
            added[4] = open < slot - width and open or nil
            rows[#rows + 1] = kind .. string.format('%.0f:', slot) .. name
            rows[#rows + 1] = joined(added)
            base[first], base[first + 1], base[first + 2] = unpack(total)
            base[8], base.new = now, true
        end
    end
    if #rows > 0 then
        redis.call('HSET', hours, unpack(rows))
    end
    for old = math.max(open - kept, 0), math.min(slot - kept, open), width do
        local fields = {}
        for i, name in ipairs(names) do
            fields[i] = kind .. string.format('%.0f:', old) .. name
        end
        redis.call('HDEL', hours, unpack(fields))
    end
end

local function look(hours, key, at, totals)
    local bases, size = bases_of(key, at, totals)
    local begun, names = not bases, {''}
    if begun then
        redis.call('DEL', hours, key)
        at, bases, size = {now, now, 0, 0, 0}, {}, 0
    end
    for name in pairs(bases) do
        names[#names + 1] = name
    end
    admit(key, at, bases, size, totals, begun)
    close(hours, names, at, bases, totals, 1)
    close(hours, names, at, bases, totals, 2)
    at[1] = now
    local fields = {'at', joined(at)}
    for name, base in pairs(bases) do
        if base.new then
            fields[#fields + 1] = 'of:' .. name
            fields[#fields + 1] = joined(base)
        end
    end
    redis.call('HSET', key, unpack(fields))
    redis.call('PEXPIRE', key, KEPT)
    redis.call('PEXPIRE', hours, KEPT)
end

for i = 1, #KEYS, 3 do
    local at = numbers_of(redis.call('HGET', KEYS[i + 1], 'at') or nil, FIVE)
    local before = at[1] or 0
    local taken = math.floor(before / FINE) == math.floor(now / FINE) or now < before
    if not taken or before > now + HOUR then -- by so much: the clock has been set back
        look(KEYS[i], KEYS[i + 1], at, totals_of(KEYS[i + 2]))
    end
end
return {}
