#!/bin/bash
# R22, what is averaged: gradients, or parameters after a step of each rank alone; or gradients are summed.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
"$build/examples/demo_average" >demo || exit 1
claim 'averages agree for SGD, with momentum too, and not for Adam; sums are something else for SGD' python3 - demo <<'PY'
import sys
row = {w[0]: [float(x) for x in w[1:]] for w in map(str.split, open(sys.argv[1])) if len(w) == 4 and w[0] in ("sgd", "momentum", "adam")}
assert set(row) == {"sgd", "momentum", "adam"}, row
assert all(r[0] == 0 for r in row.values()), row
# 20 updates of values below 1, each rounded a few times by 2^-24: 20 * 4 * 6e-8 is 5e-6 at worst; here it is far less
assert row["sgd"][1] <= 1e-6 and row["momentum"][1] <= 2e-6, row
assert row["adam"][1] > 1e-4, row
assert row["sgd"][2] > 1e-2 and row["momentum"][2] > 1e-2, row
PY
finish
