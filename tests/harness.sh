# harness.sh -- what test scripts share: claims, counted, and a folder that goes away.
#
#   . "$(dirname "$0")/harness.sh"
#   claim 'gives 2' test "$(build/x)" = 2
#   finish
#
# $1 of the script is the build folder. A claim's output is shown when it fails. The script runs under
# tests/guard.c: however it ends, what it started ends too and $tmp is removed.
set -u
build=$(cd "${1:?usage: $0 BUILD}" && pwd) || exit 1
source_dir=$(cd "$(dirname "$0")/.." && pwd) || exit 1
[ -x "$build/tests/guard" ] || { echo "$build/tests/guard is missing: build the tests first (make build)"; exit 1; }
[ -n "${LOCKSTEP_TEST_TMP:-}" ] || exec "$build/tests/guard" bash "$0" "$@"
tmp=$LOCKSTEP_TEST_TMP
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$tmp/cache} # nothing of the user's cache is read or written
unset LOCKSTEP_TEST_TMP # or a script that this one starts would take the folder for its own
passed=0 failed=0

claim() { # sentence, command...
    local sentence=$1 out
    shift
    if out=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf 'FAILED: %s\n  command: %s\n' "$sentence" "$*"
        sed 's/^/  | /' <<<"$out"
    fi
}

# Runs a command; its exit status must be $1 and its stderr must have the text $2.
fails_with() { # status, text, command...
    local want=$1 text=$2 status err
    shift 2
    err=$("$@" 2>&1 >/dev/null)
    status=$?
    [ $status = "$want" ] || { echo "exit status $status, expected $want: $err"; return 1; }
    [[ $err == *"$text"* ]] || { echo "'$text' is not in: $err"; return 1; }
}

has_line() { # text, command...: stdout has a line with the text
    local text=$1 out
    shift
    out=$("$@") || return 1
    [[ $out == *"$text"* ]] || { echo "'$text' is not in: $out"; return 1; }
}

# From here on nothing can be fetched: the programs that download fail, and no data set of this machine is found.
offline() {
    local program
    mkdir -p "$tmp/offline"
    for program in apt-get npm curl wget; do
        printf '#!/bin/sh\necho "%s $*" >>"%s/offline/log"\necho "E: tests have no network" >&2\nexit 100\n' $program "$tmp" >"$tmp/offline/$program"
        chmod +x "$tmp/offline/$program"
    done
    export PATH=$tmp/offline:$PATH XDG_DATA_DIRS=$tmp/offline XDG_CACHE_HOME=$tmp/offline/cache
    unset LOCKSTEP_GPT2
}

# A loopback port that is free now, and none of those that the system hands out by itself, nor of tests/harness_port.c.
free_port() {
    python3 -c 'import os, socket
for k in range(700):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try: s.bind(("127.0.0.1", 32000 + (os.getpid() + k) % 700))
        except OSError: continue
        print(s.getsockname()[1])
        break'
}

finish() {
    printf '%d passed, %d failed\n' $passed $failed
    [ $failed = 0 ]
    exit
}

# A text of so many lines, as tokens of one letter each, in the folder `tokens`; $lockstep is the program.
small_text() {
    for ((i = 0; i < $1; i++)); do echo "Rank $((i * 7919 % 97)) saves what it has, and rank $((i * 31 % 53)) goes on."; done >text.txt
    "$lockstep" data prepare text.txt --out tokens --tokenizer char --val 0.1 >/dev/null || exit 1
}
