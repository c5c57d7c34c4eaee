-- Arguments: owner, or an empty text for all; the prefix of the entity; the member of `owned` after which to begin, or
-- an empty text; the number of members to look at. Returns the last member, or an empty text if there are no more; and
-- { resource, owner, token, held, remaining } of each lease. A member begins with a digit.
local from, to = '-', '+'
if ARGV[1] ~= '' then
    local prefix = #ARGV[1] .. ':' .. ARGV[1]
    from, to = '[' .. prefix, '(' .. prefix .. ':'
end
if ARGV[3] ~= '' then
    from = '(' .. ARGV[3]
end
local members = redis.call('ZRANGEBYLEX', owned, from, to, 'LIMIT', 0, ARGV[4])
local all = {}
for _, member in ipairs(members) do
    local length, rest = string.match(member, '^(%d+):(.*)$')
    local owner, resource = string.sub(rest or '', 1, tonumber(length or 0)), string.sub(rest or '', tonumber(length or 0) + 1)
    local lease = read_any(resource)
    local size, name = string.match(resource, '^(%d+):(.*)$')
    local begins = #ARGV[2] <= tonumber(size or 0) and string.sub(name or '', 1, #ARGV[2]) == ARGV[2]
    if lease and begins and lease.owner == owner and lease.tail > now and (ARGV[1] == '' or owner == ARGV[1]) then
        all[#all + 1] = { resource, owner, lease.token, math.max(now - lease.since, 0), left(lease) }
    end
end
return { #members == tonumber(ARGV[4]) and members[#members] or '', all }
