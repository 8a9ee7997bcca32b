-- Jobs that wait in `blocked` for a worker that knows their name.  A worker passes `knows`, a digest of all names that
-- it knows.  `unknown` has a field "digest NUL name" for each name that the workers of that digest do not know.
-- `offer` holds a token while such jobs wait: a worker that knows them may have been busy when they were parked.
--! on demand
--! keys unknown blocked waits offer offer_alone queued alone
--! use blocked log wake

-- The key in `blocked` for a name in one lane; no limit key starts like this.
local function unknown_key(letter, name)
    return '\4' .. letter .. name
end

local strange = {} -- one call handles many jobs of one name
local function is_unknown(knows, name)
    if strange[name] == nil then
        strange[name] = redis.call('HEXISTS', unknown, knows .. '\0' .. name) == 1
    end
    return strange[name]
end

local function learn_unknown(knows, name)
    local FORGET, MANY = 86400000, 10000 -- ms: learning a forgotten name again costs one claim
    if redis.call('HLEN', unknown) > MANY then
        redis.call('DEL', unknown)
    end
    redis.call('HSET', unknown, knows .. '\0' .. name, now)
    redis.call('PEXPIRE', unknown, FORGET)
end

-- The job waits from now on, at the place that it had.
local function park(id, name, score, letter)
    local tried = redis.call('HGET', tries, id)
    local counts = read_tries(tried)
    if counts.parked == 0 then
        counts.parked = now
        set_tries(id, counts, not has_begun(tried))
    end
    block(unknown_key(letter == 's' and 's' or 'a', name), id, score, letter)
end

local function make_offer(letter)
    wake_up(letter == 's' and offer or offer_alone)
end

-- The job is no longer parked.
local function unpark(id)
    local tried = redis.call('HGET', tries, id)
    local counts = read_tries(tried)
    if has_begun(tried) or counts.earlier > 0 then
        counts.parked = 0
        set_tries(id, counts, not has_begun(tried))
    else
        redis.call('HDEL', tries, id)
    end
end

-- For a claim that got nothing: 1 if jobs wait for a worker that knows them.
local function others_wait(knows, letter)
    if knows == '' then
        return 0
    end
    return #redis.call('ZRANGEBYLEX', blocked, '[\4' .. letter, '(\4' .. letter .. '\255', 'LIMIT', 0, 1)
end

-- Let in jobs that this worker may know, at most `limit`.  Returns whether any are left for other workers or for
-- another call, and how many were let in.
local function admit_known(knows, letter, limit)
    local NAMES = 20 -- names that one call checks; the next call continues behind them
    local low, high = '[\4' .. letter, '(\4' .. letter .. '\255'
    local cursor, most = knows .. letter, limit
    local stopped_at = redis.call('HGET', unknown, cursor)
    local from, others = stopped_at and '(' .. stopped_at .. '\1' or low, false
    local wrapped = not stopped_at
    for looked = 1, NAMES do
        local head = redis.call('ZRANGEBYLEX', blocked, from, high, 'LIMIT', 0, 1)[1]
        if not head and not wrapped then
            wrapped = true
            head = redis.call('ZRANGEBYLEX', blocked, low, high, 'LIMIT', 0, 1)[1]
        end
        local key = head and string.match(head, '^(%Z*)%z')
        if not head then
            break
        elseif not key then -- unreadable: continue behind it
            from = '(' .. head
        elseif is_unknown(knows, string.sub(key, 3)) then
            others = true
            from = '(' .. key .. '\1'
        elseif limit <= 0 then
            others = true
            break
        else
            limit = limit - let_in(key, limit, unpark)
            from = limit > 0 and '(' .. key .. '\1' or '[' .. key
        end
        if looked == NAMES then
            others = true
            redis.call('HSET', unknown, cursor, key or '')
            return others, most - limit
        end
    end
    if stopped_at then
        redis.call('HDEL', unknown, cursor)
    end
    return others, most - limit
end
