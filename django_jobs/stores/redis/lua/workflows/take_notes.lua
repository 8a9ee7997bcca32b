-- take_notes: the oldest notes of a queue, for one reader at a time; those that the reader has followed go
--
-- Two readers would do the same work twice: each takes its notes in one turn, which ends with the last note, or when the
-- reader is silent for as long as its lease.
--
-- Arguments: reader, lease (ms), most (notes; 0: the reader gives its turn back), most bytes, then the first 20
--       bytes of each note that it has followed
-- Returns the notes; none if there are no more, or another reader has the turn.
--! answers again
--! args reader lease:int most:int most_bytes:int
--! keys notes reading
local turn = redis.pcall('GET', reading)
local ends, holder = string.match(type(turn) == 'string' and turn or '', '^(%d+):(.*)$')
if ends and holder ~= reader and tonumber(ends) > now then
    return reply_again({}, false)
end
redis.call('DEL', reading) -- first write: needs no memory; the key may have another type
local followed, n = {}, #ARGV - FIRST + 1
for i = FIRST, #ARGV do
    followed[ARGV[i]] = true
end
-- They are at the head of the list, unless a reader of 0.2.0, which takes no turns, has removed some.
local gone = 0
for _, note in ipairs(n > 0 and redis.call('LRANGE', notes, 0, n - 1) or {}) do
    if not followed[string.sub(note, 1, 20)] then
        break
    end
    gone = gone + 1
end
if gone > 0 then
    redis.call('LTRIM', notes, gone, -1)
end
local out, bytes = {}, 0
for _, note in ipairs(most > 0 and redis.call('LRANGE', notes, 0, most - 1) or {}) do
    if bytes < most_bytes then
        out[#out + 1] = note
        bytes = bytes + #note
    end
end
if #out > 0 then
    redis.call('SET', reading, string.format('%.0f:', now + lease) .. reader)
end
return reply_again(out, true)
