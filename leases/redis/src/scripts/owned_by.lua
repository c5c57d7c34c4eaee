-- Argument: owner. Returns { resource, token, held, remaining, policy } of each lease.
local all = {}
for _, found in ipairs(all_of(ARGV[1])) do
    local resource, lease = found[1], found[2]
    all[#all + 1] = { resource, lease.token, math.max(now - lease.since, 0), left(lease), lease.policy }
end
return all
