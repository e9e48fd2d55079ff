#!/bin/bash
# test_parallel_example.sh -- examples/parallel_gpt: a program's own loop over pipeline stages, replicas and tensor parallel ranks ends with
# the loss of one rank.
#
#   tests/test_parallel_example.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
example=$build/examples/parallel_gpt
last() { timeout -k 5 100 "$example" "$@" 2>err | sed -n 's/^step 20: loss //p'; }
near() { awk -v a="$1" -v b="$2" 'BEGIN { d = a / b - 1; exit !(a > 0 && d < 1e-4 && d > -1e-4) }' || { echo "$1 beside $2"; cat err; return 1; }; }
one=$(last 1 1 1)
claim 'it learns to count' awk -v a="$one" 'BEGIN { exit !(a > 0.5 && a < 2) }'
for sizes in '2 2 2' '1 8 1' '2 1 4' '4 2 1' '1 2 4'; do
    # shellcheck disable=SC2086  # three words
    claim "$sizes: the loss of one rank" near "$(last $sizes)" "$one"
done
refuse() { ! timeout 60 "$example" "$@" >/dev/null 2>err; }
claim 'three replicas have no equal parts of 8' refuse 1 3 1
claim 'and it says what fits' grep -q 'DP 1, 2, 4 or 8' err
claim 'three ranks inside a layer of 4 heads' refuse 1 1 3
claim 'the plan names the nearest' grep -q 'tp 3 does not divide model.n_head, which is 4: nearest valid: 2 or 4' err
claim 'the example is short' test "$(wc -l <"$source_dir/examples/parallel_gpt.c")" -le 120
finish
