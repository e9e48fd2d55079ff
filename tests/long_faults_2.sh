#!/bin/bash
# long_faults_2.sh -- random runs 251 to 500 of tests/test_random_faults.c: whatever goes wrong, nobody hangs.
#
#   tests/long_faults_2.sh BUILD
. "$(dirname "$0")/harness.sh"

runs() { # from the seed $1 on
    LOCKSTEP_SEED=$1 LOCKSTEP_RUNS=125 "$build/tests/test_random_faults"
}

runs 376 >"$tmp/second" 2>&1 &
second=$!
claim '125 runs from seed 251 on' runs 251
wait $second
status=$?
cat "$tmp/second"
claim '125 runs from seed 376 on' test $status = 0
finish
