-- Acquires a lease, or reports its owner.
--
-- Arguments: run, longest, trusts, resource, owner, want: a(ny) f(resh) m(ine) n(ew), waiting, term, idle, total,
-- policy, channel.
--
-- Returns { what, owner or token, held, remaining }; what: g(ranted), r(esumed), b(usy), f(ree), q(uarantined).
local run, resource, owner, want = ARGV[1], ARGV[4], ARGV[5], ARGV[6]
local waiting, has_term, idle, total, policy = ARGV[7] == '1', ARGV[8] == '1', ARGV[9], ARGV[10], ARGV[11]

local both = redis.call('HMGET', leases, 'meta', resource)
local last, barred, doubt, by, is_new = recall(both[1], run, ARGV[2], ARGV[3])
if is_new then
    if not both[1] then
        redis.call('PUBLISH', ARGV[12], '')
    end
    keep_meta(last, barred, doubt, by)
end
local lease = unpacked(both[2])
local is_live = lease and lease.tail > now
local is_mine = is_live and lease.owner == owner

if is_live and not (is_mine and (want == 'a' or want == 'm' or want == 'f' and has_term)) then
    if waiting and not lease.is_wanted then
        lease.is_wanted = true
        redis.call('HSET', leases, resource, packed(lease))
    end
    return { 'b', lease.owner, 0, left(lease) }
end
if not is_live and (want == 'm' or not has_term) then
    return { 'f', '', 0, 0 }
end
if barred > now then
    return { 'q', '', 0, barred - now }
end

if is_mine and want ~= 'f' and tonumber(lease.token) > tonumber(doubt) then
    if has_term then
        lease.tail = math.max(lease.tail, reach(lease.since, idle, total))
        lease.policy = policy
        keep_end(resource, lease)
        redis.call('HSET', leases, resource, packed(lease))
    end
    return { 'r', lease.token, math.max(now - lease.since, 0), left(lease) }
end

-- A token in doubt may be ahead of a clock that was set back.
local new = {
    token = text(math.max(tonumber(last) + 1, tonumber(doubt) + 1, now)), since = now, tail = has_term and reach(now, idle, total) or lease.tail,
    -- Waiters still wait, so the flag stays.
    is_wanted = lease and lease.is_wanted, policy = has_term and policy or lease.policy, owner = owner,
}
if is_live then
    -- The same owner had a tenure. Notify its holder; and the waiters, if the new tenure ends earlier.
    tell(ARGV[12], lease.is_wanted and new.tail < lease.tail and 't' or 'n', lease.token, resource)
elseif not lease and taken_away(resource) then
    tell(ARGV[12], 'd', text(tonumber(new.token) - 1), resource)
end
-- Each grant removes up to two expired leases, which is more than it adds.
reclaim(2)
redis.call('ZADD', owned, 0, place(owner, resource))
keep_end(resource, new)
redis.call('HSET', leases, resource, packed(new), 'meta', packed_meta(new.token, barred, doubt, by))
if lease and lease.owner ~= owner then
    redis.call('ZREM', owned, place(lease.owner, resource))
end
return { 'g', new.token, 0, left(new) }
