#!/bin/bash
# optim.scale_lr: the scaled rate is printed, and trains as if it had been given.
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
finish
