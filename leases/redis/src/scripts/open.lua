-- run, longest, trusts, init: says how long the quarantine still lasts.
local last, barred, doubt, is_new = recall(redis.call('HGET', leases, 'meta'), ARGV[1], ARGV[2], ARGV[3])
if ARGV[4] == '1' then
    barred = 0
    is_new = true
end
if is_new then
    keep_meta(last, barred, doubt, ARGV[1])
end
return math.max(barred - now, 0)
