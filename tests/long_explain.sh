#!/bin/bash
# long_explain.sh -- 40 random layouts of tests/test_explain_layouts.sh: `lockstep explain` is what their runs count, to the byte.
#
#   tests/long_explain.sh BUILD
export LOCKSTEP_SEED=100 LOCKSTEP_RUNS=40
exec bash "$(dirname "$0")/test_explain_layouts.sh" "$@"
