#!/bin/bash
# long_collectives.sh -- the whole product of tests/test_collectives.c: every collective, algorithm, type, operator and
# size, for 1 to 9 ranks and 16, in every sort of world.
#
#   tests/long_collectives.sh BUILD
. "$(dirname "$0")/harness.sh"

for n in 1 2 3 4 5 6 7 8 9 16; do
    claim "$n ranks" env LOCKSTEP_TEST_COMPLETE=$n timeout 1800 "$build/tests/test_collectives"
done
finish
