-- For scripts that acquire.

-- Parses the wish of a request. Returns its letter in lower case, whether the request waits, and the words.
local function parsed_wish(wish)
    local letter, idle, total, policy = string.match(wish, '^(%a)(%S*) (%S*) (%S+)$')
    local want = string.lower(letter)
    return want, letter ~= want, idle, total, policy
end

-- Returns whether a missing lease was deleted by hand: its end is still in the index, and has not passed. (A lease that
-- never expires has no end in the index, so its deletion is not noticed.)
local function taken_away(resource)
    local tail = redis.call('ZSCORE', ends, resource)
    return tail and tonumber(tail) > now
end

-- Returns the state of the namespace, as `recall` does. If `recall` has changed the state, stores it; if there was
-- none, first notifies all waiters and holders.
local function current(meta, run, longest, trusts, channel)
    local last, barred, doubt, by, is_new = recall(meta, run, longest, trusts)
    if is_new then
        if not meta then
            redis.call('PUBLISH', channel, '')
        end
        keep_meta(last, barred, doubt, by)
    end
    return last, barred, doubt, by
end
