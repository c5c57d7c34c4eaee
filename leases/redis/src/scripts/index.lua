-- For scripts that change leases.

-- Returns the end of a lease that is acquired or renewed now: NEVER without limits.
local function reach(since, idle, total)
    return math.min(now + number(idle), since + number(total))
end

local function packed(token, since, tail, wanted, policy, owner)
    return token .. ' ' .. since .. ' ' .. tail .. ' ' .. wanted .. ' ' .. policy .. ' ' .. owner
end

local function keep_end(resource, tail)
    if tail == NEVER then
        redis.call('ZREM', ends, resource)
    else
        redis.call('ZADD', ends, text(tail), resource)
    end
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
        local lease = parsed(redis.call('HGET', leases, resource))
        if lease and lease.tail <= now then
            forget(resource, lease)
            count = count + 1
        else
            redis.call('ZREM', ends, resource)
        end
    end
    return count
end
