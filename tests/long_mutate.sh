#!/bin/bash
# Ten mutants of tools/mutants.txt, others every day: each is noticed by a suite, or explained in the list.
. "$(dirname "$0")/harness.sh"
out=$(nice "$source_dir/tools/mutate" --sample 10 --jobs 2 2>&1)
status=$?
printf '%s\n' "$out"
claim 'the sample was drawn and run' grep -q '^10 mutants drawn' <<<"$out"
claim 'no mutant survived without an explanation' bash -c '! grep -qE "^survived without|^ERROR" <<<"$1"' _ "$out"
[ $status = 0 ] || [ $status = 1 ] || claim 'tools/mutate ran' false
finish
