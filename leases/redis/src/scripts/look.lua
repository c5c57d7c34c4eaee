-- Argument: resource. Returns { owner, token, held, remaining }, or nothing.
local lease = read(ARGV[1])
if not lease or lease.tail <= now then
    return false
end
return { lease.owner, lease.token, math.max(now - lease.since, 0), left(lease) }
