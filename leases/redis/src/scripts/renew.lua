-- Arguments, for each lease: resource, owner, token, term, idle, total. Returns the remaining time of each; -1: it has
-- ended, -2: it never expires.
local known, all = {}, {}
for at = 1, #ARGV, 6 do
    known[ARGV[at]] = known[ARGV[at]] or read_any(ARGV[at])
end
for at = 1, #ARGV, 6 do
    local resource, owner, token, has_term = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3] == '1'
    local lease = known[resource]
    local remaining = -1
    if lease and lease.owner == owner and lease.token == token and lease.tail > now then
        local tail = lease.tail
        if has_term then
            lease.tail = math.max(tail, reach(lease.since, ARGV[at + 4], ARGV[at + 5]))
        end
        if lease.tail ~= tail then
            keep_end(resource, lease.tail)
            local wanted = lease.is_wanted and '1' or '0'
            local kept = packed(token, text(lease.since), text(lease.tail), wanted, lease.policy, owner)
            redis.call('HSET', leases, resource, kept)
        end
        remaining = left(lease) or -2
    end
    all[#all + 1] = remaining
end
return all
