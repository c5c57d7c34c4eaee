-- Arguments: resource, owner or nothing, token or nothing, channel.
-- Returns { what, owner }; what: g(one), f(ree already), b(usy: another tenure).
local resource, owner, token = ARGV[1], ARGV[2], ARGV[3]
local lease = read(resource)
if not lease or lease.tail <= now then
    return { 'f', '' }
end
if owner ~= '' and lease.owner ~= owner or token ~= '' and lease.token ~= token then
    return { 'b', lease.owner }
end
-- The message is received only after this script has ended. A caller that gives both the owner and the token counts as
-- the holder, which need not be notified.
if lease.is_wanted or owner == '' or token == '' then
    tell(ARGV[4], 'r', lease.token, resource)
end
forget(resource, lease)
return { 'g', '' }
