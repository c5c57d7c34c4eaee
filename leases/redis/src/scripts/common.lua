-- What all scripts begin with. They are sent to the server as they stand, each behind this one.
--
-- A namespace has three keys, in one slot:
--   leases  a hash: of each resource its lease, and in the field `meta` what makes it a namespace
--   ends    a sorted set: of each resource whose lease ends by itself when that is, so that what has expired is found
--   owned   a sorted set without scores: owner and resource, so that what an owner has is found
--
-- One reading of the clock decides everything in a script. Its numbers, microseconds since 1970, are below 2^53: a double has them exactly.
--
-- A script that fails has changed nothing: whatever can be refused, as by a key that is of another type or for want of memory, is refused
-- at its first write, before which all has been read and told. Indices are written before the lease, and a lease is deleted last.
-- (If `owned` alone is of another type, a lease may lose its place in `ends`: no sweep finds it then.)
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

-- Digits, of what is below 2^53. An end, the sum of two such numbers, is below 2^54.
local function is_number(digits, limit)
    return string.match(digits, '^%d+$') and tonumber(digits) < (limit or 9007199254740992)
end

-- 'token since until wanted policy owner'; the owner may contain anything. What is no lease is nil.
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
        error('what is kept there is no lease')
    end
    return lease
end

local function read(resource)
    return unpacked(redis.call('HGET', leases, resource))
end

-- The same, where one that is no lease must not stop what is done to others.
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

-- When a lease ends that is acquired or renewed now. Without limits: never.
local function reach(since, idle, total)
    return math.min(now + number(idle), since + number(total))
end

-- Microseconds; false: for ever.
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

-- A tenure of the resource is over, and all before it: r(eleased), t(aken over), n(o matter to those who wait: taken over),
-- d(eleted by hand).
local function tell(channel, how, token, resource)
    redis.call('PUBLISH', channel, how .. token .. ' ' .. resource)
end

-- Whether a lease that is not there has not ended by itself, nor was it released: somebody has deleted it.
local function taken_away(resource)
    local tail = redis.call('ZSCORE', ends, resource)
    return tail and tonumber(tail) > now
end

local function forget(resource, lease)
    redis.call('ZREM', ends, resource)
    redis.call('ZREM', owned, place(lease.owner, resource))
    redis.call('HDEL', leases, resource)
end

-- Up to so many that have expired; says how many it were. What is no lease is left where it is, and does not come due again.
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

-- What an owner has that has not expired: { resource, lease }.
local function all_of(owner)
    local prefix = #owner .. ':' .. owner
    local found = {}
    -- A resource begins with a digit, and a colon comes after all of them.
    for _, member in ipairs(redis.call('ZRANGEBYLEX', owned, '[' .. prefix, '(' .. prefix .. ':')) do
        local resource = string.sub(member, #prefix + 1)
        local lease = read_any(resource)
        if lease and lease.owner == owner and lease.tail > now then
            found[#found + 1] = { resource, lease }
        end
    end
    return found
end

-- What `meta` says, of which the first word is the version of all that is kept here: the greatest token of the namespace, until when nothing
-- is granted, which tokens are in doubt, and who has written it: which run of the server, and which history of its data that run had then. Whoever
-- has a token in doubt may have released it, and somebody else may have had a greater one, in what was forgotten.
local function parsed_meta(meta)
    local last, barred, doubt, run, history = string.match(meta, '^v1 (%d+) (%d+) (%d+) (%S*) ?(%x*)$')
    if not last or not is_number(last) or not is_number(barred) or not is_number(doubt) then
        error('the namespace is of another version')
    end
    return last, tonumber(barred), doubt, run, history
end

-- The history of the server's data, and the one that it goes on from if the server has become a primary by promotion. It changes with each
-- promotion; and also without, when the first replica comes, or the last has been gone for long: then it goes on from none.
local function histories()
    local told = redis.call('INFO', 'replication')
    local history, former = string.match(told, 'master_replid:(%x+)'), string.match(told, 'master_replid2:(%x*[1-9a-f]%x*)')
    return history or '', former
end

-- A namespace without `meta` is new, or forgotten: whatever it may have granted ends by then. The same if it was another server that kept
-- it, or the same before a restart, or before it was a replica for a while: that may have granted what this one does not know. The fourth
-- and fifth that it returns are for `meta`, and whether that has to be written.
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
        -- The clock has been set back since.
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
