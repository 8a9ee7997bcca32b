-- The last line of a text, or nil if there is none.  A pattern that looks for it from the front would take a time that grows
-- with the square of a long text.
local function last_line(log)
    local from = 1
    while log do
        local last = string.find(log, '\n', from, true)
        if not last then
            return string.sub(log, from)
        end
        from = last + 1
    end
    return nil
end
