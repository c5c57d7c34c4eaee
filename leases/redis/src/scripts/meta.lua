-- For scripts that read or write the state of the namespace.

-- Parses `meta`. Its first word is the version of everything that is stored in the namespace. Then come the greatest
-- token of the namespace, the time until which nothing is granted, the token up to which tokens are in doubt, and the
-- writer: the run of the server, and the history of its data during that run. The server may have forgotten the release
-- of a token in doubt, and greater tokens granted after it.
local function parsed_meta(meta)
    local last, barred, doubt, run, history = string.match(meta, '^v1 (%d+) (%d+) (%d+) (%S*) ?(%x*)$')
    local limit = last and tonumber(barred)
    if not last or tonumber(last) >= LIMIT or limit >= LIMIT or tonumber(doubt) >= LIMIT then
        error('the namespace was written by another version of this engine')
    end
    return last, limit, doubt, run, history
end

-- Returns the hexadecimal number that follows a word in a text.
local function number_behind(word, told)
    -- A fixed word is found faster than a pattern.
    local _, at = string.find(told, word, 1, true)
    return at and string.match(told, '^%x+', at + 1) or ''
end

-- Returns the state of the namespace, and detects forgotten leases. A namespace without `meta` is new or forgotten: it
-- is barred until every lease that it may have granted has ended. It is also barred if `meta` was written by another
-- server, by this one before a restart, or by this one before it was a replica for a while: leases may have been
-- granted that this server does not know. If restarts are trusted, only the last of these cases counts. The fourth
-- result is the writer for `meta`, and the fifth says whether `meta` has to be written.
--
-- The server's data have a history. It changes when the server becomes a primary by promotion, and then continues an
-- earlier one. It also changes when the first replica connects, or when the last has been gone for a long time: then it
-- continues no earlier one.
local function recall(meta, run, longest, trusts)
    local told = redis.call('INFO', 'replication')
    local history = number_behind('master_replid:', told)
    local by = run .. ' ' .. history
    if not meta then
        if redis.call('HLEN', leases) == 0 then
            redis.call('DEL', ends, owned)
        end
        return '0', now + longest, text(now), by, true
    end
    local last, barred, doubt, writer, written = parsed_meta(meta)
    local is_other, has_changed = writer ~= run, written ~= history
    local was_promoted = not is_other and has_changed and written ~= '' and
        string.find(number_behind('master_replid2:', told), '[1-9a-f]')
    if was_promoted or is_other and trusts ~= '1' then
        barred = now + longest
        doubt = text(math.max(tonumber(last), tonumber(doubt)))
    elseif barred > now + longest then
        -- The clock was set back after `meta` was written.
        barred = now + longest
        has_changed = true
    end
    return last, barred, doubt, by, is_other or has_changed
end

local function packed_meta(last, barred, doubt, by)
    return 'v1 ' .. last .. ' ' .. text(barred) .. ' ' .. doubt .. ' ' .. by
end

local function keep_meta(last, barred, doubt, by)
    redis.call('HSET', leases, 'meta', packed_meta(last, barred, doubt, by))
end
