-- resource, owner, token or nothing, channel
-- { what, who }: g(one), f(ree already), b(usy: another tenure)
local resource, owner, token = ARGV[1], ARGV[2], ARGV[3]
local lease = read(resource)
if not lease or lease.tail <= now then
    return { 'f', '' }
end
if lease.owner ~= owner or token ~= '' and lease.token ~= token then
    return { 'b', lease.owner }
end
-- Whoever hears of it does so behind this script.
if lease.is_wanted then
    redis.call('PUBLISH', ARGV[4], resource)
end
forget(resource, lease)
return { 'g', '' }
