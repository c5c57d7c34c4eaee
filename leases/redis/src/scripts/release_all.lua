-- Arguments: owner, channel. Returns the resources that were released.
local found, all = all_of(ARGV[1]), {}
for _, each in ipairs(found) do
    redis.call('PUBLISH', ARGV[2], message('r', each[2].token, each[1]))
end
for _, each in ipairs(found) do
    forget(each[1], each[2])
    all[#all + 1] = each[1]
end
return all
