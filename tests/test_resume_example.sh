#!/bin/bash
# test_resume_example.sh -- examples/resume: a program's own loop goes on from its newest checkpoint to the same digest.
#
#   tests/test_resume_example.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
resume() { timeout -k 5 60 "$build/lockstep" run --nproc-per-node "$1" -- "$build/examples/resume" "$2" >out 2>err; }
prints() { grep -qE -- "$1" out || { cat out err; return 1; }; }
resume 2 whole
claim 'it begins' prints '^beginning at step 0$'
want=$(tail -1 out)
claim 'and ends' prints '^step 100: digest [0-9a-f]{32}$'
cp -r whole cut
rm -r cut/step-00000060 cut/step-00000080 cut/step-00000100 # as if it had been killed in step 41 to 59
resume 2 cut
claim 'it goes on' prints '^going on after step 40$'
claim 'to the same digest' test "$(tail -1 out)" = "$want"
claim 'with the same state' "$build/lockstep" ckpt diff whole/step-00000100 cut/step-00000100
rm -r cut/step-00000060 cut/step-00000080 cut/step-00000100
resume 3 cut
claim 'on three ranks, too' prints '^going on after step 40$'
claim 'and ends there' prints '^step 100: digest '
resume 2 whole
claim 'nothing left to do: the same digest' test "$(tail -1 out)" = "$want"
finish
