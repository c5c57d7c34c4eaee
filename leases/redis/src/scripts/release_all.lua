-- owner, channel. What it had.
local found, all = all_of(ARGV[1]), {}
for _, each in ipairs(found) do
    if each[2].is_wanted then
        redis.call('PUBLISH', ARGV[2], each[1])
    end
end
for _, each in ipairs(found) do
    forget(each[1], each[2])
    all[#all + 1] = each[1]
end
return all
