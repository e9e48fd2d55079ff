#!/bin/bash
# test_scaling.sh -- R89: bench/scaling measures speed-up, efficiency and exposed communication. The arithmetic is checked with
# runs whose metrics are made up; how fast this machine is is nobody's test.
#
#   tests/test_scaling.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
scaling=$source_dir/bench/scaling

# A stand-in for `lockstep train`: each step takes 30 ms on one rank, 20 on two and 15 on four, for 48 samples together. The first
# steps are ten times slower, and do not count.
mkdir fake
cat >fake/lockstep <<'END'
#!/bin/bash
while [ $# -gt 0 ]; do case $1 in --nproc-per-node) n=$2 ;; --run.dir) dir=$2 ;; esac; shift; done
[ "$n" != 3 ] || { echo 'no three ranks here' >&2; exit 1; }
mkdir "$dir"
awk -v n="$n" 'BEGIN { for (i = 1; i <= 20; i++) { t = (n == 1 ? 0.03 : n == 2 ? 0.02 : 0.015) * (i <= 4 ? 10 : 1)
    printf "{\"step\":%d,\"throughput(tps)\":%.17g,\"time_metrics/end_to_end(s)\":%.17g,\"comm/exposed(s)\":%.17g}\n", i, 48 / n / t, t, n == 1 ? 0 : 0.004 } }' >"$dir/metrics.jsonl"
END
chmod +x fake/lockstep
"$scaling" -b fake -n '1 2 4' recipe.yaml >out || exit 1
row() { awk -v n="$1" '$1 == n { print $2, $3, $4, $5, $6 }' out; }
claim 'R89 one rank is the measure' test "$(row 1)" = '1600.0 1.00 100% 30.000 0.000'
claim 'R89 two ranks: speed-up 1.5, three quarters of two' test "$(row 2)" = '2400.0 1.50 75% 20.000 4.000'
claim 'R89 four ranks: speed-up 2, half of four' test "$(row 4)" = '3200.0 2.00 50% 15.000 4.000'
claim 'R89 a run that fails is named' fails_with 1 'the run on 3 ranks failed' "$scaling" -b fake -n '1 3' recipe.yaml
claim 'R89 without a recipe it says how it is used' test "$("$scaling" 2>&1 | grep -c 'RECIPE')" -ge 1

# and one of the real program
"$scaling" -b "$build" -n '1 2' "$source_dir/recipes/exercise-mlp.yaml" --train.steps 20 >out || exit 1
claim 'R89 real runs give a line for each number of ranks' test "$(grep -cE '^ +[12] +[0-9.]+ +[0-9.]+ +[0-9]+% +[0-9.]+ +[0-9.]+$' out)" = 2
claim 'R89 of which one rank is the measure' grep -qE '^ +1 +[0-9.]+ +1\.00 +100% ' out
finish
