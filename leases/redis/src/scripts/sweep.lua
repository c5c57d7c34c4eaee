-- how many at most
local meta = redis.call('HGET', leases, 'meta')
if meta then
    parsed_meta(meta)
end
return reclaim(ARGV[1])
