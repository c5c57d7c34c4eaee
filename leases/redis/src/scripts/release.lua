-- resource, owner or nothing, token or nothing, channel
-- { what, who }: g(one), f(ree already), b(usy: another tenure)
local resource, owner, token = ARGV[1], ARGV[2], ARGV[3]
local lease = read(resource)
if not lease or lease.tail <= now then
    return { 'f', '' }
end
if owner ~= '' and lease.owner ~= owner or token ~= '' and lease.token ~= token then
    return { 'b', lease.owner }
end
-- Whoever hears of it does so behind this script. Who has both owner and token is taken for the holder, who need not be told.
if lease.is_wanted or owner == '' or token == '' then
    tell(ARGV[4], 'r', lease.token, resource)
end
forget(resource, lease)
return { 'g', '' }
