-- Releases a lease. The arguments and the answer are those of `decide.lua` for one request.
local resource, owner, known_token = ARGV[5], ARGV[6], string.sub(ARGV[7], 2)
local value = redis.call('HGET', leases, resource)
local token, _, tail, wanted, _, holder = fields(value)
if value and not token then
    unreadable()
end
if not token or tail <= now then
    return 'f'
end
if owner ~= '' and holder ~= owner or known_token ~= '' and token ~= known_token then
    return 'b' .. text(tail - now) .. ' ' .. holder
end
-- The message is received only after this script has ended. A caller that gives both the owner and the token counts as
-- the holder, which need not be notified.
if wanted == '1' or owner == '' or known_token == '' then
    redis.call('PUBLISH', ARGV[4], message('r', token, resource))
end
redis.call('ZREM', ends, resource)
redis.call('ZREM', owned, place(holder, resource))
redis.call('HDEL', leases, resource)
return 'g'
