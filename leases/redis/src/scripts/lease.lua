-- For scripts that read whole leases.

local function unpacked(packed)
    local lease = parsed(packed)
    if packed and not lease then
        unreadable()
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

-- Returns the remaining time in microseconds; false if the lease never expires.
local function left(lease)
    return lease.tail ~= NEVER and lease.tail - now
end
