-- Arguments: run, longest, trusts, init, channel. Returns the remaining time of the quarantine.
local meta = redis.call('HGET', leases, 'meta')
local last, barred, doubt, by, is_new = recall(meta, ARGV[1], ARGV[2], ARGV[3])
if ARGV[4] == '1' then
    barred = 0
    is_new = true
end
if is_new then
    if not meta then
        redis.call('PUBLISH', ARGV[5], '')
    end
    keep_meta(last, barred, doubt, by)
end
return math.max(barred - now, 0)
