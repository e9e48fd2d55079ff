#!/bin/bash
# test_invariant.sh -- train.numerics invariant: losses, gradient norms and weights have the bits of one rank for 2, 4 and 8
# ranks, every stage of ZeRO, transport and micro-batch, of which each meets each other; in f32 and bf16; also where a run
# goes on with other ranks. Fast numerics has other bits in the same layouts. What cannot add in one order is refused.
#
#   tests/test_invariant.sh BUILD
. "$(dirname "$0")/harness_invariant.sh"

# --- pairs: every rank count with every stage, transport and micro-batch, and so on ------------------------------------
rows=()
for w in 0 1 2 3; do
    for s in 0 1 2 3 4; do
        t=$(((w + s) % 3)) m=$(((w + 2 * s) % 3))
        is_refused $s $t && t=$((w % 2 * 2))
        rows+=("$w $s $t $m")
    done
done
missing_pairs() {
    local sizes=(4 5 3 3) a b i j row n=0
    for a in 0 1 2 3; do
        for ((b = a + 1; b < 4; b++)); do
            for ((i = 0; i < sizes[a]; i++)); do
                for ((j = 0; j < sizes[b]; j++)); do
                    [ $a = 1 ] && [ $b = 2 ] && is_refused $i $j && continue
                    for row in "${rows[@]}"; do
                        local at=($row)
                        [ "${at[a]}" = $i ] && [ "${at[b]}" = $j ] && continue 2
                    done
                    echo "factors $a and $b: values $i and $j never meet"
                    n=1
                done
            done
        done
    done
    return $n
}
claim 'every value meets every other' missing_pairs
claim 'gpt2, 1 rank' reference gpt
for row in "${rows[@]}"; do
    claim "gpt2, $(layout $row)" is_the_same gpt $(layout $row)
done
says_its_cost() {
    go gpt 2 --train.micro_batch 4
    prints '^numerics: invariant: one binary tree over 32 grains of 1 sample; per rank and step 16 forwards \(fast: 4\), 1 reduction of gradients \(fast: 1\), 0\.1 MiB of partial sums' || return 1
    go gpt 2 --zero.stage 2 --train.micro_batch 4
    prints 'per rank and step 16 forwards \(fast: 4\), 16 reductions of gradients \(fast: 4\), 0\.0 MiB'
}
claim 'it says what it costs' says_its_cost

# --- what else may differ ------------------------------------------------------------------------------------------------
claim 'gpt2, small buckets' is_the_same gpt 4 --ddp.bucket_cap 1KiB --ddp.first_bucket 1KiB
claim 'gpt2, small buckets of shards' is_the_same gpt 2 --zero.stage 2 --ddp.bucket_cap 1KiB --ddp.overlap false
claim 'gpt2, reduced once' is_the_same gpt 4 --zero.stage 3 --zero.reduce last
claim 'gpt2, sets of shards' is_the_same gpt 8 --zero.stage 3 --zero.hsdp 2
claim 'gpt2, sets of shards over connections' is_the_same gpt 8 --zero.stage 2 --zero.hsdp 2 --comm.transport tcp
claim 'gpt2, four sets over connections' is_the_same gpt 8 --zero.stage 2 --zero.hsdp 4 --comm.transport tcp
claim 'gpt2, sets of shards over connections, reduced once' is_the_same gpt 4 --zero.stage 1 --zero.hsdp 2 --comm.transport tcp
claim 'gpt2, two nodes' over_two_nodes gpt 2
claim 'gpt2, two nodes, a copy of the weights on each' over_two_nodes gpt 2 --zero.stage 3
claim 'gpt2, two nodes, a set of shards on each' over_two_nodes gpt 2 --zero.stage 2 --zero.hsdp 2
claim 'gpt2, recomputed' is_the_same gpt 2 --train.recompute full
claim 'gpt2, by direct' is_the_same gpt 4 --comm.algo direct
OMP_NUM_THREADS=2 claim 'gpt2, threads of a rank' is_the_same gpt 2 --zero.stage 1
claim 'gpt2, grains of 4, 1 rank' reference gpt --train.grain 4
claim 'gpt2, grains of 4' is_the_same gpt 8 --train.grain 4 --zero.stage 2
claim 'gpt2, grains of 4, over connections' is_the_same gpt 4 --train.grain 4 --comm.transport tcp
scaled=(--train.dtype bf16 --optim.loss_scale dynamic --optim.scale_interval 2 --optim.scale_init 1024)
claim 'gpt2, bf16, 1 rank' reference gpt "${scaled[@]}"
claim 'gpt2, bf16, stage 0' is_the_same gpt 2 "${scaled[@]}" --comm.transport tcp
claim 'gpt2, bf16, stage 2' is_the_same gpt 8 "${scaled[@]}" --zero.stage 2
claim 'gpt2, bf16, stage 3' is_the_same gpt 4 "${scaled[@]}" --zero.stage 3
claim 'mlp, 1 rank' reference mlp
claim 'mlp, the rest of an epoch on 2 ranks' is_the_same mlp 2 --train.micro_batch 4
claim 'mlp, the rest of an epoch on 8 ranks' is_the_same mlp 8 --zero.stage 1 --comm.transport tcp
claim 'mlp, the rest of an epoch in turns' is_the_same mlp 4 --zero.stage 2 --data.workers 1
claim 'mlp, grains that the rest ends in, 1 rank' reference mlp --train.grain 16
claim 'mlp, grains that the rest ends in' is_the_same mlp 4 --train.grain 16 --zero.stage 3

# --- pipelines: a stage adds up its part of the gradient as one rank does, if no matrix is on two stages ------------------
claim 'gpt2, untied, 1 rank' reference gpt --model.tied false --model.n_layer 4
stages() { is_the_same gpt "$@" --model.tied false --model.n_layer 4; }
claim '2 stages' stages 2 --parallel.pp 2
claim '4 stages, GPipe' stages 4 --parallel.pp 4 --pipeline.schedule gpipe --ranks-as threads
claim '2 stages of 2 chunks' stages 2 --parallel.pp 2 --pipeline.schedule interleaved
claim '2 stages, 2 replicas, stage 1' stages 4 --parallel.pp 2 --zero.stage 1
claim '2 stages, 4 replicas, stage 2' stages 8 --parallel.pp 2 --zero.stage 2 --ranks-as threads
claim '2 stages, 2 replicas, stage 3' stages 4 --parallel.pp 2 --zero.stage 3
claim '2 stages, 4 replicas, stage 3 gathered, over connections' stages 8 --parallel.pp 2 --zero.stage 3 --zero.copy rank --comm.transport tcp
claim '3 stages, 2 replicas, recomputed' stages 6 --parallel.pp 3 --train.recompute full
claim '2 stages that end inside a layer' stages 2 --parallel.pp 2 --pipeline.split 1.5,2.5
claim '3 stages that end inside layers, 2 replicas, stage 2' stages 6 --parallel.pp 3 --pipeline.split 0.5,2,1.5 --zero.stage 2
claim '2 stages of 2 chunks that end inside layers, recomputed, stage 3' stages 4 --parallel.pp 2 --pipeline.schedule interleaved \
    --pipeline.split 0.5,1.5,1,1 --zero.stage 3 --train.recompute full
claim 'gpt2, untied, bf16, 1 rank' reference gpt --model.tied false "${scaled[@]}"
claim 'bf16, 2 stages, 2 replicas' is_the_same gpt 4 --model.tied false "${scaled[@]}" --parallel.pp 2
claim 'mlp, 1 rank, again' reference mlp --model.dims 20,17,9,5
claim 'mlp, 2 stages, the rest of an epoch' is_the_same mlp 4 --model.dims 20,17,9,5 --parallel.pp 2

# --- going on with other ranks -------------------------------------------------------------------------------------------
claim 'the whole run, 1 rank' reference gpt
go gpt 2 --checkpoint.every 3 --zero.stage 1 --inject kill@1:5 --checkpoint.resume auto
claim 'it is killed' ends_with 82
cp -r go cut
goes_on() { # ranks, options...
    rm -rf go && cp -r cut go
    timeout -k 5 100 "$lockstep" train gpt.yaml --nproc-per-node "$@" --run.dir go --checkpoint.resume auto >out 2>err
    code=$?
    ends_with 0 && prints '^resuming step 3 of go/' && diff want.final <(final) && diff want.bits <(bits go)
}
claim '2 ranks, and then 1' goes_on 1
claim '2 ranks, and then 4' goes_on 4 --zero.stage 3 --train.micro_batch 2
claim '2 ranks, and then 8' goes_on 8 --comm.transport tcp --zero.stage 2
stays() { # option, text
    rm -rf go && cp -r cut go
    timeout -k 5 100 "$lockstep" train gpt.yaml --nproc-per-node 2 --run.dir go --checkpoint.resume auto $1 >out 2>err
    code=$?
    ends_with 78 && says "$2"
}
claim 'numerics stay' stays '--train.numerics fast' 'train.numerics invariant -> fast'
claim 'grains stay' stays '--train.grain 2' 'train.grain 1 -> 2'

# --- the order of sums is all that differs from fast numerics, which other suites compare with PyTorch ------------------------
# Losses and norms of the first steps, the rest of an epoch among them, agree as far as sums of floats do: to one in 1e4.
near() { # recipe, steps
    go "$1" 1 --train.numerics fast
    cp -r go fast
    go "$1" 4
    paste <(bits fast) <(bits go) | awk -v most="$2" '
        $1 == "\"step\":" && $2 > most { exit }
        $1 ~ /avg_loss|grad_norm/ { n++; d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * $2) { print; bad = 1 } }
        END { exit bad || n != 2 * most }'
    local st=$?
    rm -rf fast
    return $st
}
claim 'gpt2: near fast numerics' near gpt 5
claim 'mlp: near fast numerics, the rest of an epoch, too' near mlp 16

# --- fast numerics has other bits: these runs could differ ------------------------------------------------------------------
claim 'gpt2, fast, 1 rank' reference gpt --train.numerics fast
differs() {
    go gpt "$@" --train.numerics fast
    [ "$code" = 0 ] && ! diff -q want.final <(final) >/dev/null
}
claim 'fast: 2 ranks differ' differs 2
claim 'fast: 4 ranks differ' differs 4 --zero.stage 2
claim 'fast: micro-batches differ' differs 1 --train.micro_batch 4
claim 'fast: mlp, 1 rank' reference mlp --train.numerics fast
claim 'mlp, fast: 4 ranks differ' eval 'go mlp 4 --train.numerics fast; [ $code = 0 ] && ! diff -q want.final <(final) >/dev/null'

# --- what is refused --------------------------------------------------------------------------------------------------------
refused() { # ranks, text, options...
    local ranks=$1 text=$2
    shift 2
    go gpt "$ranks" "$@"
    ends_with 78 && says "$text"
}
claim 'a batch of 24' refused 2 'train.global_batch is 24 and train.grain 1: expected a power of two of grains: set train.grain to 3' --train.global_batch 24
claim 'a batch of 24 in grains of 3 is none' eval 'go gpt 8 --train.global_batch 24 --train.grain 3; ends_with 0'
claim 'a grain that does not divide' refused 2 'train.grain 5: expected a power of two of grains: set train.grain to 8' --train.grain 5
claim '3 ranks' refused 3 'train.numerics invariant on 3 ranks: expected a power of two, at most the 8 grains' --train.global_batch 24 --train.grain 3
claim 'more ranks than grains' refused 8 'at most the 4 grains of train.global_batch 32 (train.grain 8)' --train.grain 8
claim 'a ring' refused 4 'comm.algo ring: ring adds in an order of its own' --comm.algo ring
claim 'a tied embedding on two stages' refused 2 'the first and the last of 2 stages each add up a part of a tied' --parallel.pp 2
claim 'backwards in halves' refused 2 'schedule zb-h1 has backwards in two halves' --parallel.pp 2 --pipeline.schedule zb-h1 --model.tied false
claim 'more replicas than grains' refused 8 'on 4 replicas: expected a power of two, at most the 2 grains' --parallel.pp 2 --model.tied false --train.grain 16
claim 'bf16 on the wire' refused 2 'train.numerics invariant with comm.wire bf16' --comm.wire bf16 --comm.transport tcp
claim 'a hook' refused 2 'train.numerics invariant with ddp.hook' --ddp.hook bf16
claim 'unused parameters' refused 2 'train.numerics invariant with ddp.find_unused true' --ddp.find_unused true
claim 'a static graph' refused 2 'train.numerics invariant with ddp.static_graph true' --ddp.static_graph true
claim 'bucket_view' refused 2 'train.numerics invariant with ddp.bucket_view true' --ddp.bucket_view true
claim 'packed weights' refused 2 'train.numerics invariant with train.pack_weights always' --train.pack_weights always
claim 'a rate that follows the ranks' refused 2 'train.numerics invariant with optim.scale_lr' --optim.scale_lr linear
finish
