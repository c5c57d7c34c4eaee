-- owner, channel. What it had.
local all = {}
for _, found in ipairs(all_of(ARGV[1])) do
    local resource, lease = found[1], found[2]
    forget(resource, lease)
    if lease.is_wanted then
        redis.call('PUBLISH', ARGV[2], resource)
    end
    all[#all + 1] = resource
end
return all
