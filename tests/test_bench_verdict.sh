#!/bin/bash
# bench/verdict: every placement is measured in every pass, a pair one right after the other; and what it works out of made-up rows.
#
#   tests/test_bench_verdict.sh BUILD
. "$(dirname "$0")/harness.sh"
verdict=$source_dir/bench/verdict
cd "$tmp" || exit 1

# --- rows whose means are known: three placements that cost 1, 2 and 6 %, so mean 3 and standard error sqrt(7 / 3) = 1.53
rows() { # costs in percent, of which each is a placement; the second of three passes meets a machine half as fast
    local cost pass i=0
    echo pass,placement,collective,memory,side,ns
    for pass in 0 1 2; do
        i=0
        for cost in "$@"; do
            echo "$pass,place $((i += 1)),all_reduce,private,with,$(((1000 + 10 * cost) * (pass == 1 ? 2 : 1)))"
            echo "$pass,place $i,all_reduce,private,without,$((pass == 1 ? 2000 : 1000))"
        done
    done
}
rows 1 2 6 >rows.csv
claim 'it shows saved rows without measuring' sh -c "'$verdict' --rows rows.csv >shown"
claim 'every placement has a row' test "$(grep -c '^all_reduce  private     place' shown)" = 3
claim 'with both times and the cost' grep -Eqx 'all_reduce +private +place 3 +1060\.0 +1000\.0 +\+6\.00%' shown
claim 'and the mean over placements stands there with its standard error' grep -Eqx 'all_reduce +private +3 +\+3\.00% +1\.53%' shown
rows 1 -3 >faster.csv
claim 'a placement that is faster with signing counts as such' sh -c "'$verdict' --rows faster.csv | grep -Eqx 'all_reduce +private +2 +-1\.00% +2\.00%'"

# --- rows that cannot be compared
grep -v '^2,place 2,.*,without,' rows.csv >half.csv
claim 'half a pair is refused by name' fails_with 1 'pass 2 of all_reduce, private memory, placement place 2 is not complete' "$verdict" --rows half.csv
rows 4 >one.csv
claim 'one placement has no standard error' fails_with 1 'a standard error needs two placements or more, found 1' "$verdict" --rows one.csv
claim 'no pass is no measurement' fails_with 2 'expected 1 or more, got 0' "$verdict" --passes 0

# --- the order of measuring
cat >load.py <<'PY'
import importlib.machinery
import importlib.util
import sys
loader = importlib.machinery.SourceFileLoader('verdict', sys.argv[1])
verdict = importlib.util.module_from_spec(importlib.util.spec_from_loader('verdict', loader))
loader.exec_module(verdict)
PY
claim 'pairs are interleaved, and take turns in being first' env PYTHONPATH="$tmp" python3 -B - "$verdict" <<'PY'
from load import verdict
pairs = [verdict.Placement('p%d' % i, 'p%d+' % i, 'p%d-' % i) for i in range(3)]
ran = []
def time(program, coll, flags):
    ran.append((program, coll, tuple(flags)))
    return 1.0
rows = list(verdict.measure(pairs, 2, time))
assert len(rows) == len(ran) == 2 * 3 * 6 * 2
for i in range(0, len(ran), 2):
    one, other = ran[i], ran[i + 1]
    assert one[1:] == other[1:] and one[0][:-1] == other[0][:-1], (one, other)
    assert one[0][-1] + other[0][-1] == ('+-' if i < len(ran) // 2 else '-+'), (i, one, other)
assert sorted(set(r[0][:-1] for r in ran[:36])) == ['p0', 'p1', 'p2']
PY
claim 'there are three placements or more, each with and without' env PYTHONPATH="$tmp" python3 -B - "$verdict" <<'PY'
from load import verdict
verdict.build = lambda alignment, side, jobs, mold: ' '.join((alignment[1], side[1])).strip()
verdict.linked = lambda folder, order: (folder, order)
for mold, orders in ((False, 1), (True, verdict.ORDERS)):
    pairs = verdict.placements(mold)
    assert len(pairs) == 3 * orders and len(set(p.name for p in pairs)) == len(pairs)
    for p in pairs:
        flags, order = p.with_signing
        other, same_order = p.without
        assert other == (flags + ' -DLS_NO_VERDICT -Wno-unused-function').strip() and order == same_order, p
    assert len(set(p.with_signing for p in pairs)) == len(pairs)
PY
claim 'the help says how long it takes' has_line 'It takes about 6 minutes on 2 idle cores' "$verdict" --help
finish
