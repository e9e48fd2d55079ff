#!/bin/bash
# long_layouts.sh -- random layouts of tests/test_layouts_random.c: 100 up to 16 ranks of each of its three kinds, and 20 of 32 to 64 ranks.
# Each trains the model that one rank trains.
#
#   tests/long_layouts.sh BUILD
. "$(dirname "$0")/harness.sh"
export LOCKSTEP_SEED=1 LOCKSTEP_RUNS=100 LOCKSTEP_LARGE=20
out=$("$build/tests/test_layouts_random" 2>&1)
status=$?
printf '%s\n' "$out" | grep -v '^tokens of'
claim '320 layouts from seed 1 on' test $status = 0
finish
