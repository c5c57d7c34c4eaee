-- Argument: the greatest number of leases to remove. Returns the number removed.
local meta = redis.call('HGET', leases, 'meta')
if meta then
    parsed_meta(meta)
end
return reclaim(ARGV[1])
