#!/bin/bash
# test_own_data.sh -- examples/own_data.c: a user's data set by callback, with and without worker threads, on one rank and on
# many; what is said of a line that cannot be read; and what docs/your-own-model.md shows of it.
#
#   tests/test_own_data.sh BUILD
. "$(dirname "$0")/harness.sh"
own=$build/examples/own_data
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1

# 200 points around three centres: a few epochs learn them.
awk 'BEGIN { srand(7); for (i = 0; i < 200; i++) { c = i % 3; printf "%d", c
    for (f = 0; f < 4; f++) printf ",%.3f", (f == c ? 2 : -1) + rand() - 0.5; print "" } }' >data.csv
"$own" data.csv 0 >none || exit 1
claim 'ten epochs of 200 samples' test "$(grep -c '^epoch [0-9]  samples 200  loss' none)" = 10
claim 'it learns' awk '/^epoch/ { if (!first) first = $6; last = $6 } END { exit !(first > 0.3 && last < 0.03) }' none
for workers in 1 2 5; do
    claim "$workers workers give the same losses, to the last digit" diff none <("$own" data.csv $workers)
done
"$build/lockstep" run --nproc-per-node 4 "$own" data.csv 0 >four || exit 1
claim 'four ranks have 200 samples together' test "$(grep -c 'samples 200 ' four)" = 10
claim 'and workers give them the same losses' diff four <("$build/lockstep" run --nproc-per-node 4 "$own" data.csv 3)

{ cat data.csv; echo 1,2,x,4,5; } >bad.csv
{ cat data.csv; echo 7,1,2,3,4; } >label.csv
for workers in 0 3; do
    claim "$workers workers: a line that cannot be read is named, with its sample" fails_with 65 \
        'getting sample 200 of the data set: line 201: 1 numbers after the label, expected 4' "$own" bad.csv $workers
    claim "$workers workers: and so is a label" fails_with 65 'sample 200 of the data set: line 201: label 7, expected 0 to 2' \
        "$own" label.csv $workers
    claim "$workers workers: on every rank" fails_with 65 'line 201: label 7' \
        "$build/lockstep" run --nproc-per-node 2 "$own" label.csv $workers
done
claim 'a file that is not there is named' fails_with 74 'absent.csv cannot be opened' "$own" absent.csv

# --- the page about it
pasted() { # every line of the C blocks after its heading is in the program
    awk '/^## Your own data$/ { here = 1; next } /^## / { here = 0 } here && /^```c$/ { on = 1; next } /^```/ { on = 0 } on' \
        "$source_dir/docs/your-own-model.md" | grep -v '^$' >shown
    [ "$(wc -l <shown)" -ge 10 ] && ! grep -vxFf "$source_dir/examples/own_data.c" shown
}
claim 'the page shows lines of the program' pasted
finish
