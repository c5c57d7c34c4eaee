-- For scripts that find the leases of an owner.

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
