#!/bin/bash
# lockstep coll, as users and scripts drive it.   test_coll.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep work=$tmp

# check NAME STATUS PATTERN COMMAND...: the exit status, and what stdout and stderr together contain
check() {
    local name=$1 status=$2 pattern=$3
    shift 3
    "$@" >"$work/out" 2>&1
    local got=$?
    if [ $got = "$status" ] && grep -qE -- "$pattern" "$work/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name: status $got, expected $status with '$pattern':"
        sed 's/^/    /' "$work/out" | head -20
    fi
}

check 'proves the ring' 0 '^proved for 4 ranks, pushed and pulled' \
    "$lockstep" coll --coll all_reduce --algo ring -n 4
check 'prints the rank asked for' 0 '^rank 2 of 5: ' "$lockstep" coll -n 5 --rank 2
check 'places ranks on hosts' 0 'recv_reduce out.2. <- 3 +complete' \
    "$lockstep" coll --algo hierarchical -n 4 --hosts 2 --rank 1
check 'chooses an algorithm that serves the collective' 0 '^broadcast by tree' "$lockstep" coll --coll broadcast
for row in ring:all_reduce direct:reduce_scatter oneshot:all_gather fold:all_reduce tree:reduce dissemination:barrier \
    halving_doubling:reduce_scatter double_tree:all_reduce hierarchical:all_gather linear:gather linear:scatter \
    linear:reduce pairwise:all_to_all pairwise:sendrecv bruck:all_to_all bruck:all_gather tree:scatter tree:barrier; do
    algo=${row%:*} coll=${row#*:}
    "$lockstep" coll --coll "$coll" --algo "$algo" -n 6 --segments 2 --lanes 2 --json >"$work/$algo.json"
    check "proves $algo from its own JSON" 0 '^proved for 6 ranks' "$lockstep" coll --file "$work/$algo.json"
done
check 'proves blocks of any length' 0 '^proved for 5 ranks' \
    "$lockstep" coll --coll all_to_all --algo pairwise -n 5 --uneven
check 'refuses blocks of any length where they swap places' 64 "'bruck' does not fit all_to_all" \
    "$lockstep" coll --coll all_to_all --algo bruck -n 5 --uneven
check 'lists algorithms with their sources' 0 '^ring +all_reduce, reduce_scatter, all_gather +Patarasuk' \
    "$lockstep" coll --list
check 'draws a graph' 0 '^digraph' "$lockstep" coll --dot

sed '0,/"kind": "recv"/s//"kind": "recv_reduce"/' "$work/ring.json" >"$work/broken.json"
check 'refuses a broken schedule, with the place' 65 'error\[bad-file\].*not proved: all_reduce over 6 ranks.*rank 0' \
    "$lockstep" coll --file "$work/broken.json"
echo '[' >"$work/cut.json"
check 'refuses what is not JSON, with the line' 65 'error\[bad-file\].*cut.json: line ' \
    "$lockstep" coll --file "$work/cut.json"
check 'a missing file is an I/O error' 74 'error\[io\].*none.json' "$lockstep" coll --file "$work/none.json"
check 'names the nearest algorithm' 64 "did you mean 'ring'" "$lockstep" coll --algo rnig
check 'names the nearest collective' 64 "did you mean 'all_reduce'" "$lockstep" coll --coll all_redcue
check 'names the nearest command' 64 "did you mean 'coll'" "$lockstep" coll_
check 'refuses an algorithm for another collective' 64 "'ring' does not do barrier" \
    "$lockstep" coll --algo ring --coll barrier
check 'refuses a rank that is not there' 64 'rank 4 of 4 ranks: expected 0 to 3' "$lockstep" coll --rank 4
check 'refuses too many ranks' 64 'ranks.*1\.\.256' "$lockstep" coll -n 257
check 'refuses stray words' 64 "unexpected 'ring'" "$lockstep" coll ring
check 'shows its options' 0 '--segments N' "$lockstep" coll --help
check 'says what it is built of' 0 'commit.*jansson' "$lockstep" --version
check 'does not take a full disk for success' 74 'standard output' bash -c "'$lockstep' coll >/dev/full"
printf '\033[31m' >"$work/x"
check 'shows control characters of a name instead of sending them' 64 '\\x1b' "$lockstep" coll --algo "$(cat "$work/x")"
finish
