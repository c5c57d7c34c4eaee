-- owner. Of each lease { resource, token, held, remaining, policy }.
local all = {}
for _, found in ipairs(all_of(ARGV[1])) do
    local resource, lease = found[1], found[2]
    all[#all + 1] = { resource, lease.token, math.max(now - lease.since, 0), left(lease), lease.policy }
end
return all
