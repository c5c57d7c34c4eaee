-- Acquires a lease, or reports its owner. The arguments and the answer are those of `decide.lua` for one request.
local channel, resource, owner = ARGV[4], ARGV[5], ARGV[6]
local want, waits, idle, total, policy = parsed_wish(ARGV[7])
local has_term = idle ~= ''

local both = redis.call('HMGET', leases, 'meta', resource)
local last, barred, doubt, by = current(both[1], ARGV[1], ARGV[2], ARGV[3], channel)
local token, since, tail, wanted, known_policy, holder = fields(both[2])
if both[2] and not token then
    unreadable()
end
local is_live = token and tail > now
local is_mine = is_live and holder == owner

if is_live and not (is_mine and (want == 'a' or want == 'm' or want == 'f' and has_term)) then
    if waits and wanted == '0' then
        redis.call('HSET', leases, resource, packed(token, text(since), text(tail), '1', known_policy, holder))
    end
    return 'b' .. text(tail - now) .. ' ' .. holder
end
if not is_live and (want == 'm' or not has_term) then
    return 'f'
end
if barred > now then
    return 'q' .. text(barred - now)
end

if is_mine and want ~= 'f' and tonumber(token) > tonumber(doubt) then
    if has_term then
        tail = math.max(tail, reach(since, idle, total))
        keep_end(resource, tail)
        redis.call('HSET', leases, resource, packed(token, text(since), text(tail), wanted, policy, owner))
    end
    return 'r' .. token .. ' ' .. text(math.max(now - since, 0)) .. ' ' .. text(tail - now)
end

-- A token in doubt may be ahead of a clock that was set back.
local greatest = math.max(tonumber(last) + 1, tonumber(doubt) + 1, now)
local new, new_end = text(greatest), has_term and reach(now, idle, total) or tail
if is_live then
    -- The same owner had a tenure. Notify its holder; and the waiters, if the new tenure ends earlier.
    redis.call('PUBLISH', channel, message(wanted == '1' and new_end < tail and 't' or 'n', token, resource))
elseif not token and taken_away(resource) then
    redis.call('PUBLISH', channel, message('d', text(greatest - 1), resource))
end
-- Each grant removes up to two expired leases, which is more than it adds.
reclaim(2)
redis.call('ZADD', owned, 0, place(owner, resource))
keep_end(resource, new_end)
-- Waiters still wait, so the flag stays.
local kept = packed(new, text(now), text(new_end), wanted or '0', has_term and policy or known_policy, owner)
redis.call('HSET', leases, resource, kept, 'meta', packed_meta(new, barred, doubt, by))
if token and holder ~= owner then
    redis.call('ZREM', owned, place(holder, resource))
end
return 'g' .. new .. ' 0 ' .. text(new_end - now)
