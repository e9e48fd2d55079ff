#!/bin/bash
# optim.scale_lr: the scaled rate is printed, and trains as if it had been given. On 8 ranks with 8 times the global batch it
# follows the run of one rank, which an unscaled rate does not.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
go() { "$build/lockstep" train "$source_dir/recipes/exercise-mlp.yaml" --train.steps 8 --run.dir "$1" "${@:2}" >"$1.out" 2>&1 || cat "$1.out"; }
final() { grep '^final ' "$1.out"; }
go plain -n 4 --optim.lr 0.002
go given -n 4 --optim.lr 0.008
go linear -n 4 --optim.lr 0.002 --optim.scale_lr linear
go root -n 4 --optim.lr 0.002 --optim.scale_lr sqrt
go twice -n 4 --optim.lr 0.004
go warm -n 4 --optim.lr 0.002 --optim.scale_lr linear --optim.warmup 3
go warmed -n 4 --optim.lr 0.008 --optim.warmup 3
go one -n 1 --optim.lr 0.002 --optim.scale_lr linear
claim 'linear: 4 ranks train with 4 times the rate' test "$(final linear)" = "$(final given)"
claim 'sqrt: with twice the rate' test "$(final root)" = "$(final twice)"
claim 'which is not the same as without' test "$(final plain)" != "$(final linear)"
claim 'warm-up leads to the scaled rate' test "$(final warm)" = "$(final warmed)"
claim 'linear is printed' grep -qx 'learning rate: 0.008 = optim.lr 0.002 x 4 ranks (optim.scale_lr linear)' linear.out
claim 'so is sqrt' grep -qx 'learning rate: 0.004 = optim.lr 0.002 x sqrt(4) ranks (optim.scale_lr sqrt)' root.out
claim 'and warm-up' grep -q '^learning rate: 0.008 = .* ranks, reached by warm-up (' warm.out
claim 'one rank keeps its rate' grep -qx 'learning rate: 0.002 = optim.lr 0.002 x 1 rank (optim.scale_lr linear)' one.out
claim 'nothing is printed where nothing is scaled' test "$(grep -c '^learning rate' plain.out)" = 0
claim 'another word' fails_with 64 'expected one of none|linear|sqrt' "$build/lockstep" train "$source_dir/recipes/exercise-mlp.yaml" --optim.scale_lr cubic

# --- R33: one rank with batches of 8 against 8 ranks with batches of 64, after the same 1,280 samples, with plain SGD ----------
# A step of the 8 ranks has the samples of 8 steps of the one. With g the mean gradient of those samples, 8 small steps with
# rate r move the weights by -8 r g, up to terms in r squared: the gradients of later steps are taken where earlier ones have
# led. The large step with rate q moves them by -q g. So of what the one rank gains, in loss of the test set, the 8 ranks gain
# q / (8 r): all of it with linear scaling, 1/sqrt(8) with sqrt, 1/8 unscaled.
gain() { # ranks, rate, scaling: loss before training minus loss after it
    local batch=$((8 * $1)) steps=$((160 / $1))
    rm -rf gain
    "$build/lockstep" train --model.name mlp --model.dims 784,32,10 --data.name fashion-mnist --data.path "$source_dir/tests/data/fashion-2000" \
        --train.seed 3 --optim.name sgd -n "$1" --ranks-as threads --train.global_batch $batch --train.steps $steps \
        --train.eval_every $steps --optim.lr "$2" --optim.scale_lr "$3" --run.dir gain >gain.out 2>&1 || cat gain.out >&2
    awk -v before="${before:-0}" -F'"eval/loss": ' '{ split($2, loss, ","); printf "%.12f\n", before - loss[1] }' gain/metrics.jsonl | tail -1
}
before=$(gain 1 0 none) before=${before#-}
claim 'R33 the loss before training is near ln(10), that of ten classes' awk -v l="$before" 'BEGIN { exit !(l > 2.2 && l < 2.5) }'

# So small a rate that the gain is proportional to it, up to a part b, which doubling the rate shows: gain(r) = a r (1 - b).
# The gain of the 8 ranks with rate q is that of the one with rate q / 8, so it differs from the fraction above by less than b
# of it; 2 b leaves room for the next order.
r=0.00001
one=$(gain 1 $r none) double=$(gain 1 0.00002 none)
fraction() { # scaling, expected
    awk -v all="$one" -v double="$double" -v gain="$(gain 8 $r "$1")" -v want="$2" 'BEGIN {
        b = 1 - double / (2 * all); off = gain / all / want - 1; off = off < 0 ? -off : off
        printf "%.6f of the gain of one rank, expected %.6f; off by %.5f of it, b %.5f\n", gain / all, want, off, b
        exit !(b > 0 && b < 0.02 && off < 2 * b) }'
}
claim 'R33 linear scaling gains as much as one rank' fraction linear 1
claim 'R33 sqrt scaling gains 1/sqrt(8) of it' fraction sqrt 0.3535534
claim 'R33 an unscaled rate gains 1/8 of it' fraction none 0.125

# A rate that trains: the terms in its square are there, and are far smaller than what the other scalings leave out, which to
# first order is 0.65 and 0.875 of the gain.
r=0.004
one=$(gain 1 $r none) linear=$(gain 8 $r linear) root=$(gain 8 $r sqrt) none=$(gain 8 $r none)
claim "R33 linear scaling follows one rank: $one by one rank; 8 ranks: $linear linear, $root sqrt, $none unscaled" \
    awk -v one="$one" -v linear="$linear" -v root="$root" -v none="$none" 'BEGIN {
        off = linear - one; off = off < 0 ? -off : off
        exit !(one > 0.2 && off < 0.1 * (one - root) && one - root < one - none && one - none > 0.8 * one && one - root > 0.5 * one) }'
finish
