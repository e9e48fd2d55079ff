#!/bin/bash
# long_faults_1.sh -- random runs 1 to 250 of tests/test_random_faults.c: whatever goes wrong, nobody hangs.
#
#   tests/long_faults_1.sh BUILD
. "$(dirname "$0")/harness.sh"

runs() { # from the seed $1 on
    LOCKSTEP_SEED=$1 LOCKSTEP_RUNS=125 "$build/tests/test_random_faults"
}

runs 126 >"$tmp/second" 2>&1 &
second=$!
claim '125 runs from seed 1 on' runs 1
wait $second
status=$?
cat "$tmp/second"
claim '125 runs from seed 126 on' test $status = 0
finish
