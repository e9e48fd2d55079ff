#!/bin/bash
# test_resume_example.sh -- examples/resume: a program's own loop goes on from its newest checkpoint to the same digest.
#
#   tests/test_resume_example.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # the example leaves its memory to the end of the process, and says so
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
claim 'the example is short' test "$(wc -l <"$source_dir/examples/resume.c")" -le 60
printf 'x' | dd of=cut/step-00000040/sharded/shard-00001-model-00001-of-00001.safetensors bs=1 seek=3000 conv=notrunc status=none
rm -r cut/step-000000[68]0 cut/step-00000100 cut/step-00000020
resume 2 cut
status=$?
claim 'a failure ends the job with its own status' test $status = 65
claim 'and is said once by each rank that found it' grep -q '^resume: error\[ckpt-corrupt\]: ' err
finish
