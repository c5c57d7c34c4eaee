-- how many at most
return reclaim(ARGV[1])
