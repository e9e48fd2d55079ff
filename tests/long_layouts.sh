#!/bin/bash
# long_layouts.sh -- 120 random layouts of tests/test_layouts_random.c, up to 16 ranks: each trains the model that one rank trains.
#
#   tests/long_layouts.sh BUILD
. "$(dirname "$0")/harness.sh"
export LOCKSTEP_SEED=1 LOCKSTEP_RUNS=120
claim '120 layouts from seed 1 on' "$build/tests/test_layouts_random"
finish
