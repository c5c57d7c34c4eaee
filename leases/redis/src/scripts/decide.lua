-- Decides requests to acquire and to release leases, each about a different resource, as if each had come alone. They
-- share one reading of the state, and one command for each kind of change.
--
-- Arguments: run, longest, trusts, channel; and three for each request: resource, owner, wish.
--   To acquire, the wish is a letter, idle, total and policy: 'a300000000 - s:300000000000:-'. The letter is a(ny)
--   f(resh) m(ine) n(ew), in upper case if the request waits. Without a term, idle and total are empty.
--   To release, the wish is r and the token. The owner or the token may be empty.
--
-- Returns a text for each request: a letter, and words.
--   g(ranted) or r(esumed): token, held, remaining (`-` if it never expires)
--   g(one), f(ree): nothing
--   b(usy, another tenure): remaining, owner
--   q(uarantined): remaining
-- The text is empty if the stored value is not a lease. Then the request must be sent alone, to get its own error.
local FIRST, SIZE, RELEASE = 5, 3, string.byte('r')
local run, longest, trusts, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now_text = text(now)

local read, count = { 'HMGET', leases, 'meta' }, 0
for at = FIRST, #ARGV, SIZE do
    count = count + 1
    read[count + 3] = ARGV[at]
end
local values = redis.call(unpack(read))

-- The messages and the commands that follow from the decisions. No request sees the changes of another.
local messages = {}
local begun, ended = { 'ZADD', owned }, { 'ZREM', owned }
local limited, unlimited = { 'ZADD', ends }, { 'ZREM', ends }
local kept, deleted = { 'HSET', leases }, { 'HDEL', leases }
local tenures = 0

local function add(list, one, other)
    local size = #list
    list[size + 1] = one
    list[size + 2] = other
end

-- Most requests of a batch have the same owner, and the same wish.
local known_owner, known_place
local function place_of(owner, resource)
    if owner ~= known_owner then
        known_owner, known_place = owner, place(owner, '')
    end
    return known_place .. resource
end

local known_wish, want, waits, idle, total, wished_policy, wished_end, wished_tail, wished_remaining
local function read_wish(wish)
    if wish ~= known_wish then
        known_wish = wish
        want, waits, idle, total, wished_policy = parsed_wish(wish)
        if idle ~= '' then
            wished_end = reach(now, idle, total)
            wished_tail, wished_remaining = text(wished_end), text(wished_end - now)
        end
    end
end

-- Keeps an end, given as text, in the index. A lease that never expires leaves the index.
local function keep_tail(resource, tail)
    if tail == '-' then
        add(unlimited, resource)
    else
        add(limited, tail, resource)
    end
end

local last, barred, doubt, by
local function read_state()
    last, barred, doubt, by = current(values[1], run, longest, trusts, channel)
    last, doubt = tonumber(last), tonumber(doubt)
end

local function acquire(resource, owner, value)
    local token, since, tail, wanted, policy, holder = fields(value)
    if value and not token then
        return ''
    end
    local has_term = idle ~= ''
    local is_live = token and tail > now
    local is_mine = is_live and holder == owner
    if is_live and not (is_mine and (want == 'a' or want == 'm' or want == 'f' and has_term)) then
        if waits and wanted == '0' then
            add(kept, resource, packed(token, text(since), text(tail), '1', policy, holder))
        end
        return 'b' .. text(tail - now) .. ' ' .. holder
    end
    if not is_live and (want == 'm' or not has_term) then
        return 'f'
    end
    if barred > now then
        return 'q' .. text(barred - now)
    end

    if is_mine and want ~= 'f' and tonumber(token) > doubt then
        if has_term then
            tail = math.max(tail, reach(since, idle, total))
            keep_tail(resource, text(tail))
            add(kept, resource, packed(token, text(since), text(tail), wanted, wished_policy, owner))
        end
        return 'r' .. token .. ' ' .. text(math.max(now - since, 0)) .. ' ' .. text(tail - now)
    end

    -- A token in doubt may be ahead of a clock that was set back.
    last = math.max(last + 1, doubt + 1, now)
    tenures = tenures + 1
    local new = text(last)
    local new_tail, remaining = wished_tail, wished_remaining
    if not has_term then
        new_tail, remaining = text(tail), text(tail - now)
    end
    if is_live then
        -- The same owner had a tenure. Notify its holder; and the waiters, if the new tenure ends earlier.
        local is_earlier = has_term and wished_end < tail
        add(messages, message(wanted == '1' and is_earlier and 't' or 'n', token, resource))
    elseif not token and taken_away(resource) then
        add(messages, message('d', text(last - 1), resource))
    end
    add(begun, '0', place_of(owner, resource)) -- as a number, it would be formatted each time
    if token and holder ~= owner then
        add(ended, place_of(holder, resource))
    end
    keep_tail(resource, new_tail)
    -- Waiters still wait, so the flag stays.
    add(kept, resource, packed(new, now_text, new_tail, wanted or '0', has_term and wished_policy or policy, owner))
    return 'g' .. new .. ' 0 ' .. remaining
end

local function release(resource, owner, known_token, value)
    -- A tenure that is named in full is found without reading all of its lease.
    local token, tail, wanted, holder = string.match(value or '', '^(%d+) %d+ ([%d-]%d*) ([01]) %S+ (.*)$')
    if token == known_token and holder == owner then
        tail = number(tail)
    else
        local since, policy
        token, since, tail, wanted, policy, holder = fields(value)
    end
    if value and not token then
        return ''
    end
    if not token or tail <= now then
        return 'f'
    end
    if owner ~= '' and holder ~= owner or known_token ~= '' and token ~= known_token then
        return 'b' .. text(tail - now) .. ' ' .. holder
    end
    -- The message is received only after this script has ended. A caller that gives both the owner and the token counts
    -- as the holder, which need not be notified.
    if wanted == '1' or owner == '' or known_token == '' then
        add(messages, message('r', token, resource))
    end
    add(ended, place_of(holder, resource))
    add(unlimited, resource)
    add(deleted, resource)
    return 'g'
end

local answers = {}
for n = 1, count do
    local at = FIRST + SIZE * (n - 1)
    local resource, owner, wish, value = ARGV[at], ARGV[at + 1], ARGV[at + 2], values[n + 1]
    if string.byte(wish) == RELEASE then
        answers[n] = release(resource, owner, string.sub(wish, 2), value)
    else
        if not last then
            read_state()
        end
        read_wish(wish)
        answers[n] = acquire(resource, owner, value)
    end
end

for _, message in ipairs(messages) do
    redis.call('PUBLISH', channel, message)
end
if tenures > 0 then
    -- Each grant removes up to two expired leases, which is more than it adds.
    reclaim(2 * tenures)
    add(kept, 'meta', packed_meta(text(last), barred, text(doubt), by))
else
    redis.call('ZSCORE', ends, '') -- this is refused, before anything is changed, if the key has another type
end
for _, command in ipairs({ begun, ended, limited, unlimited, kept, deleted }) do
    if #command > 2 then
        redis.call(unpack(command))
    end
end
return answers
