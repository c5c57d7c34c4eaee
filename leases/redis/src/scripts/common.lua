-- The beginning of all scripts. Each script is sent to the server as it stands, after this text.
--
-- A namespace has three keys, in one slot:
--   leases  a hash: the lease of each resource, and in the field `meta` the state of the namespace
--   ends    a sorted set: the end of each lease that expires, to find the expired ones
--   owned   a sorted set without scores: owner and resource, to find an owner's leases
--
-- One reading of the clock decides everything in a script. Its numbers, microseconds since 1970, are below 2^53, so a
-- double represents them exactly.
--
-- A script that fails has changed nothing. Redis refuses a script, because a key has another type or memory has run
-- out, at its first write; by then the script has read everything and sent its messages. Indices are written before the
-- lease, and a lease is deleted last. (If only `owned` has another type, a lease may lose its place in `ends`: then no
-- sweep finds it.)
local leases, ends, owned = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local NEVER = math.huge

local function text(number)
    if number == NEVER then
        return '-'
    end
    return string.format('%.0f', number)
end

local function number(text)
    if text == '-' then
        return NEVER
    end
    return tonumber(text)
end

-- Returns whether the digits are a number below the limit, which is 2^53 by default. An end is the sum of two such
-- numbers, so its limit is 2^54.
local function is_number(digits, limit)
    return string.match(digits, '^%d+$') and tonumber(digits) < (limit or 9007199254740992)
end

-- Parses 'token since until wanted policy owner'; the owner may contain any characters. Returns nil if the text is not
-- a lease.
local function parsed(packed)
    if not packed then
        return nil
    end
    local token, since, tail, wanted, policy, owner = string.match(packed, '^(%d+) (%d+) (%S+) ([01]) (%S+) (.*)$')
    if not token or not is_number(token) or tonumber(token) == 0 or not is_number(since) then
        return nil
    end
    if tail ~= '-' and not is_number(tail, 18014398509481984) then
        return nil
    end
    return {
        token = token, since = tonumber(since), tail = number(tail), is_wanted = wanted == '1', policy = policy, owner = owner,
    }
end

local function unpacked(packed)
    local lease = parsed(packed)
    if packed and not lease then
        error('the value that is stored for the resource is not a lease: delete it')
    end
    return lease
end

local function read(resource)
    return unpacked(redis.call('HGET', leases, resource))
end

-- Reads a lease where a value that is not a lease must not stop the work on other leases.
local function read_any(resource)
    return parsed(redis.call('HGET', leases, resource))
end

local function packed(lease)
    local wanted = lease.is_wanted and '1' or '0'
    return lease.token .. ' ' .. text(lease.since) .. ' ' .. text(lease.tail) .. ' ' .. wanted .. ' ' .. lease.policy .. ' ' .. lease.owner
end

local function place(owner, resource)
    return #owner .. ':' .. owner .. resource
end

-- Returns the end of a lease that is acquired or renewed now: NEVER without limits.
local function reach(since, idle, total)
    return math.min(now + number(idle), since + number(total))
end

-- Returns microseconds; false if the lease never expires.
local function left(lease)
    return lease.tail ~= NEVER and lease.tail - now
end

local function keep_end(resource, lease)
    if lease.tail == NEVER then
        redis.call('ZREM', ends, resource)
    else
        redis.call('ZADD', ends, text(lease.tail), resource)
    end
end

-- Sends a message that a tenure of the resource, and all earlier ones, have ended: r(eleased), t(aken over), n(o matter
-- to waiters: taken over), d(eleted by hand).
local function tell(channel, how, token, resource)
    redis.call('PUBLISH', channel, how .. token .. ' ' .. resource)
end

-- Returns whether a missing lease was deleted by hand: it was not released, and has not expired.
local function taken_away(resource)
    local tail = redis.call('ZSCORE', ends, resource)
    return tail and tonumber(tail) > now
end

local function forget(resource, lease)
    redis.call('ZREM', ends, resource)
    redis.call('ZREM', owned, place(lease.owner, resource))
    redis.call('HDEL', leases, resource)
end

-- Removes expired leases up to the limit, and returns their number. A value that is not a lease stays in `leases`, but
-- leaves the index, so that it is not found again.
local function reclaim(limit)
    local due = redis.call('ZRANGEBYSCORE', ends, '-inf', text(now), 'LIMIT', 0, limit)
    local count = 0
    for _, resource in ipairs(due) do
        local lease = read_any(resource)
        if lease and lease.tail <= now then
            forget(resource, lease)
            count = count + 1
        else
            redis.call('ZREM', ends, resource)
        end
    end
    return count
end

-- Returns { resource, lease } of each of an owner's leases that has not expired.
local function all_of(owner)
    local prefix = #owner .. ':' .. owner
    local found = {}
    -- A resource begins with a digit, and a colon sorts after all digits.
    for _, member in ipairs(redis.call('ZRANGEBYLEX', owned, '[' .. prefix, '(' .. prefix .. ':')) do
        local resource = string.sub(member, #prefix + 1)
        local lease = read_any(resource)
        if lease and lease.owner == owner and lease.tail > now then
            found[#found + 1] = { resource, lease }
        end
    end
    return found
end

-- Parses `meta`. Its first word is the version of all that is stored here. Then come the greatest token of the
-- namespace, the time until which nothing is granted, the token up to which tokens are in doubt, and the writer: the
-- run of the server, and the history of the data that the run had. The server may have forgotten the release of a token
-- in doubt, and greater tokens granted after it.
local function parsed_meta(meta)
    local last, barred, doubt, run, history = string.match(meta, '^v1 (%d+) (%d+) (%d+) (%S*) ?(%x*)$')
    if not last or not is_number(last) or not is_number(barred) or not is_number(doubt) then
        error('the namespace was written by another version of this engine')
    end
    return last, tonumber(barred), doubt, run, history
end

-- Returns the history of the server's data; and the earlier history that it continues, if the server became a primary
-- by promotion. The history changes with each promotion. It also changes when the first replica connects, or when the
-- last has been gone for long: then it continues no earlier one.
local function histories()
    local told = redis.call('INFO', 'replication')
    local history, former = string.match(told, 'master_replid:(%x+)'), string.match(told, 'master_replid2:(%x*[1-9a-f]%x*)')
    return history or '', former
end

-- Returns the state of the namespace, and detects forgotten leases. A namespace without `meta` is new or forgotten: it
-- is barred until every lease that it may have granted has ended. It is also barred if `meta` was written by another
-- server, by this one before a restart, or by this one before it was a replica for a while: leases may have been
-- granted that this server does not know. The fourth result is the writer for `meta`, the fifth whether `meta` has to
-- be written.
local function recall(meta, run, longest, trusts)
    local history, former = histories()
    local by = run .. ' ' .. history
    if not meta then
        if redis.call('HLEN', leases) == 0 then
            redis.call('DEL', ends, owned)
        end
        return '0', now + longest, text(now), by, true
    end
    local last, barred, doubt, writer, written = parsed_meta(meta)
    local is_other, has_changed = writer ~= run, written ~= history
    local was_promoted = not is_other and has_changed and written ~= '' and former
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
