-- The beginning of all scripts. Parts that only some of them need are in `lease.lua`, `owned.lua`, `index.lua`,
-- `meta.lua` and `grant.lua`: the server runs the whole script, so each part costs time.
--
-- A namespace has three keys, in one slot:
--   leases  a hash: the lease of each resource, and in the field `meta` the state of the namespace
--   ends    a sorted set: the end of each lease that expires, to find the expired ones
--   owned   a sorted set without scores: owner and resource, to find an owner's leases
--
-- A script reads the clock once, and that instant decides everything. Times are microseconds since 1970, which are
-- below 2^53, so a double represents them exactly.
--
-- A script that fails has changed nothing. Redis refuses a script, because a key has the wrong type or memory has run
-- out, at its first write; by then the script has read everything and sent its messages. Indices are written before the
-- lease, and a lease is deleted last. (If only `owned` has the wrong type, a lease may lose its place in `ends`: then
-- no sweep finds it. `decide.lua` takes care that this happens to none of its requests' leases.)
local leases, ends, owned = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local NEVER = math.huge
local LIMIT = 9007199254740992 -- 2^53

-- `%d` is faster, and as exact, unless C's `long` has 32 bits.
local WHOLE = string.format('%d', LIMIT) == '9007199254740992' and '%d' or '%.0f'

local function text(number)
    if number == NEVER then
        return '-'
    end
    return string.format(WHOLE, number)
end

local function number(text)
    if text == '-' then
        return NEVER
    end
    return tonumber(text)
end

-- Parses 'token since until wanted policy owner'; the owner may contain any characters. Returns nothing if the text is
-- not a lease.
local function fields(packed)
    if not packed then
        return
    end
    local token, since, tail, wanted, policy, owner = string.match(packed, '^(%d+) (%d+) ([%d-]%d*) ([01]) (%S+) (.*)$')
    if not token then
        return
    end
    -- An end is the sum of a time and a duration, each of which is below 2^53.
    local value, start, finish = tonumber(token), tonumber(since), number(tail)
    if value == 0 or value >= LIMIT or start >= LIMIT or finish ~= NEVER and (finish < 0 or finish >= 2 * LIMIT) then
        return
    end
    return token, start, finish, wanted, policy, owner
end

-- Parses the text into a table.
local function parsed(packed)
    local token, since, tail, wanted, policy, owner = fields(packed)
    return token and { token = token, since = since, tail = tail, is_wanted = wanted == '1', policy = policy, owner = owner }
end

local function place(owner, resource)
    return #owner .. ':' .. owner .. resource
end

local function unreadable()
    error('the value that is stored for the resource is not a lease: delete it')
end

-- Returns the message that a tenure of the resource, and all earlier ones, have ended: r(eleased), t(aken over), n(o
-- matter to waiters: taken over), d(eleted by hand).
local function message(how, token, resource)
    return how .. token .. ' ' .. resource
end
