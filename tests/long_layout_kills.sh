#!/bin/bash
# long_layout_kills.sh -- test_layout_kills.sh with 50 random layouts, and 50 of experts.
#
#   tests/long_layout_kills.sh BUILD
export LOCKSTEP_SEED=1 LOCKSTEP_RUNS=50
exec bash "$(dirname "$0")/test_layout_kills.sh" "$@"
