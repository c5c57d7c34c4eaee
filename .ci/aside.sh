# For scripts in this folder: `source .ci/aside.sh`.
#
# `aside NAME COMMAND…` starts a command, or a function of the script, in parallel with the commands that follow it, at
# a low priority, so the command must tolerate being slow. While a command builds in a target folder, cargo keeps others
# out of that folder. `joined` waits for all commands that were started, shows their output, and fails if one of them
# failed. A script that exits without calling `joined` stops them.
#
# `linted COMMAND…` runs a command of cargo that builds, and lets clippy check the workspace's packages in the same build,
# with warnings as errors. A build without `linted` in the same target folder compiles these packages once more.
names=()
processes=()
logs=()

linted() { # COMMAND ARGUMENTS…
    RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ "$@"
}

aside() { # NAME COMMAND ARGUMENTS…
    local log
    log=$(mktemp)
    printf '\n=== in parallel with the next steps: %s\n' "$1"
    names+=("$1")
    logs+=("$log")
    shift
    set -m # a separate process group, which can be stopped as a whole
    (
        trap - EXIT
        renice -n 10 -p $BASHPID >/dev/null
        aside=yes
        set -euo pipefail
        "$@"
    ) >"$log" 2>&1 </dev/null &
    set +m
    processes+=($!)
}

joined() {
    local i code=0
    for i in "${!processes[@]}"; do
        wait "${processes[i]}" || { code=$?; printf '\n=== FAILED: %s\n' "${names[i]}"; }
        show "$i"
    done
    names=() processes=() logs=()
    [ "$code" = 0 ] || exit "$code"
}

show() { # INDEX
    printf '\n=== the output of: %s\n' "${names[$1]}"
    cat "${logs[$1]}"
    rm -f "${logs[$1]}"
}

stop_asides() {
    local i
    for i in "${!processes[@]}"; do
        kill -- "-${processes[i]}" 2>/dev/null || true
        [ ! -e "${logs[i]}" ] || show "$i"
    done
}
trap stop_asides EXIT
