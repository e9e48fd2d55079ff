#!/bin/bash
# test_train_hooks.sh -- trainings whose gradients are compressed: the loss falls nearly as far as without compression.
#
#   tests/test_train_hooks.sh BUILD
. "$(dirname "$0")/harness_train.sh"
exercise=$source_dir/recipes/exercise-mlp.yaml
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
sed -E '/^  (sample|eval)_/d' "$source_dir/recipes/gpt2-tiny.yaml" >gpt2-tiny.yaml # no samples and evaluations
tiny="gpt2-tiny.yaml --data.name whale.txt --train.steps 60 --optim.warmup 10 --log.every 1"

# Trains; leaves the mean loss of $2 steps from step $3 on, and of the last $2 ones, in $1.first and $1.last.
run() { # name, mean of so many, first, ranks, recipe, options...
    local name=$1 mean=$2 first=$3 ranks=$4
    shift 4
    rm -rf "$name"
    timeout -k 5 400 "$lockstep" train "$@" --nproc-per-node "$ranks" --run.dir "$name" >out 2>err
    code=$?
    ends_with 0 || return 1
    sed -nE 's/.*"loss_metrics\/global_avg_loss": ([^,]+),.*/\1/p' "$name/metrics.jsonl" >losses
    tail -n +"$first" losses | head -n "$mean" | average >"$name.first"
    tail -n "$mean" losses | average >"$name.last"
}
average() { awk '{ s += $1 } END { printf "%.9f\n", s / NR }'; }
# The loss of $1 falls $2 to $3 times as far as that of full.
falls() {
    paste full.first full.last "$1.first" "$1.last" |
        awk -v least="$2" -v most="$3" '{ r = ($3 - $4) / ($1 - $2); print "it falls " r " times as far: " $0; exit !(r >= least && r <= most) }'
}

# What PowerSGD leaves out of a gradient comes in a later one, so its loss follows the other with some steps of delay: three
# quarters of the way at least. Without what is left out, a random matrix of low rank is all that a step has: half at most.
for ranks in 2 3; do
    exercise="$source_dir/recipes/exercise-mlp.yaml --train.global_batch $((16 * ranks)) --train.epochs 10"
    compressed="--ddp.hook powersgd --ddp.powersgd_start 2"
    claim "exercise, $ranks ranks: in full" run full 5 1 $ranks $exercise
    claim "exercise, $ranks ranks: PowerSGD" run powersgd 5 1 $ranks $exercise $compressed
    claim "exercise, $ranks ranks: PowerSGD converges" falls powersgd 0.75 1.1
    claim "exercise, $ranks ranks: rank 4" run powersgd 5 1 $ranks $exercise $compressed --ddp.powersgd_rank 4
    claim "exercise, $ranks ranks: rank 4 comes closer" falls powersgd 0.95 1.05
    claim "exercise, $ranks ranks: no feedback" run without 5 1 $ranks $exercise $compressed --ddp.powersgd_feedback false
    claim "exercise, $ranks ranks: without feedback it does not converge" falls without -0.5 0.5
    for hook in f16 bf16; do
        claim "exercise, $ranks ranks: $hook" run rounded 5 1 $ranks $exercise --ddp.hook $hook
        claim "exercise, $ranks ranks: $hook converges" falls rounded 0.98 1.02
    done
done

# From the first compressed step on. With four columns less is left for later steps: nine tenths.
claim 'gpt2-tiny: in full' run full 5 3 2 $tiny
claim 'gpt2-tiny: PowerSGD, rank 4' run powersgd 5 3 2 $tiny --ddp.hook powersgd --ddp.powersgd_start 2 --ddp.powersgd_rank 4
claim 'gpt2-tiny: PowerSGD converges' falls powersgd 0.9 1.1
claim 'gpt2-tiny: bf16' run rounded 5 3 2 $tiny --ddp.hook bf16
claim 'gpt2-tiny: bf16 converges' falls rounded 0.98 1.02
finish
