#!/bin/bash
# Mutants of tools/lab_mutants.txt: at least nine of ten one-line faults in data parallelism, collectives, groups and data turn a claim of a lab
# red, and the list explains the others.
. "$(dirname "$0")/harness.sh"
out=$(nice "$source_dir/tools/mutate-labs" 2>&1)
status=$?
printf '%s\n' "$out"
claim 'tools/mutate-labs ran all of them' grep -qxE '[0-9]+ turned a claim red, [0-9]+ survived' <<<"$out"
claim 'nine of ten turn a claim red, the others are explained' test $status = 0
finish
