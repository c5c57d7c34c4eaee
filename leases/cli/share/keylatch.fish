# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_keylatch_global_optspecs
    string join \n engine= password-file= ca= cert= key= h/help V/version
end

function __fish_keylatch_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_keylatch_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_keylatch_using_subcommand
    set -l cmd (__fish_keylatch_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c keylatch -n "__fish_keylatch_needs_command" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_needs_command" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_needs_command" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_needs_command" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_needs_command" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_needs_command" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_needs_command" -s V -l version -d 'Print version'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "run" -d 'Run a command while holding a lease, and release it when the command ends'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "lead" -d 'Run a command for as long as this process leads; after a loss, again when it leads again'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "ls" -d 'List who has what, since when, and for how much longer'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "who" -d 'Say who has a lease; exit with 1 if nobody has it'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "watch" -d 'Say who has a lease, whenever that changes'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "release" -d 'End the tenure with this token, whoever has it'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "release-all" -d 'End everything that an owner has'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "init" -d 'Prepare a server that has no leases yet: make the tables, and open the namespace at once'
complete -c keylatch -n "__fish_keylatch_needs_command" -f -a "engines" -d 'List the engines that are built in and their URLs, and say which one is in use'
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l wait -d 'Wait for at most this long, such as 30s or 5m' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l ttl -d 'The time after which the lease ends unless it is renewed, which happens every third of it' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l grace -d 'The time before the end of the lease at which the command is ended if no renewal has succeeded (default: a fifth of the ttl)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l on-loss -d 'Kill the command before its lease ends, or only warn if the lease is lost' -r -f -a "kill\t''
warn\t''"
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l busy-code -d 'The exit code if somebody else has the lease' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l owner -d 'The name that others see (default: user@host:pid)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -l try -d 'Do not wait if somebody else has the lease'
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -s q -l quiet -d 'Say nothing about others that have the lease'
complete -c keylatch -n "__fish_keylatch_using_subcommand run" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l wait -d 'Wait for at most this long, such as 30s or 5m' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l ttl -d 'The time after which the lease ends unless it is renewed, which happens every third of it' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l grace -d 'The time before the end of the lease at which the command is ended if no renewal has succeeded (default: a fifth of the ttl)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l on-loss -d 'Kill the command before its lease ends, or only warn if the lease is lost' -r -f -a "kill\t''
warn\t''"
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l busy-code -d 'The exit code if somebody else has the lease' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l owner -d 'The name that others see (default: user@host:pid)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -l try -d 'Do not wait if somebody else has the lease'
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -s q -l quiet -d 'Say nothing about others that have the lease'
complete -c keylatch -n "__fish_keylatch_using_subcommand lead" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l owner -d 'Only the leases of this owner' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -l json -d 'One JSON object per line'
complete -c keylatch -n "__fish_keylatch_using_subcommand ls" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -l json -d 'A JSON object, or null'
complete -c keylatch -n "__fish_keylatch_using_subcommand who" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -l json -d 'One JSON object, or null, per line'
complete -c keylatch -n "__fish_keylatch_using_subcommand watch" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -l token -d 'The token, as `ls` and `who` show it' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand release-all" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand release-all" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release-all" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release-all" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release-all" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand release-all" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand init" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand init" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand init" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand init" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand init" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand init" -s h -l help -d 'Print help'
complete -c keylatch -n "__fish_keylatch_using_subcommand engines" -l engine -d 'Where the leases are: see `keylatch engines` (default: a file of this user)' -r
complete -c keylatch -n "__fish_keylatch_using_subcommand engines" -l password-file -d 'A file with the password for the engine; it is read again at each connection' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand engines" -l ca -d 'The certificates to trust, instead of the system\'s' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand engines" -l cert -d 'The certificate of this client' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand engines" -l key -d 'The key of that certificate' -r -F
complete -c keylatch -n "__fish_keylatch_using_subcommand engines" -s h -l help -d 'Print help'
