#!/bin/bash
# long_invariant.sh -- the whole product of train.numerics invariant: 1, 2, 4 and 8 ranks, every stage of ZeRO, transport and
# micro-batch, in f32 and bf16, of a gpt2, a llama, an mlp and a cnn; and on two nodes. One rank says what is right.
#
#   tests/long_invariant.sh BUILD
. "$(dirname "$0")/harness_invariant.sh"
sed 's/name: gpt2/name: llama/; s/, [a-z]*_dropout: 0.1//g' gpt.yaml >llama.yaml
sed 's/name: mlp, dims: .20, 17, 5./name: cnn, dims: [784, 4, 8, 10]/; s/epochs: 2/steps: 6/' mlp.yaml >cnn.yaml

product() { # recipe, options...
    local recipe=$1 w s t m
    shift
    claim "$recipe $*, 1 rank" reference "$recipe" "$@"
    for w in 0 1 2 3; do
        for s in 0 1 2 3 4; do
            for t in 0 1 2; do
                is_refused $s $t && continue
                for m in 0 1 2; do
                    claim "$recipe $*, $(layout $w $s $t $m)" is_the_same "$recipe" $(layout $w $s $t $m) "$@"
                done
            done
        done
    done
    for s in 0 1 2 3 4; do
        claim "$recipe $*, two nodes, stage ${stages[s]}" over_two_nodes "$recipe" 2 --zero.stage ${stages[s]} "$@"
        [ $s = 0 ] && continue
        claim "$recipe $*, sets of shards, stage ${stages[s]}" is_the_same "$recipe" 8 --zero.stage ${stages[s]} --zero.hsdp 2 "$@"
        claim "$recipe $*, two nodes, sets of shards, stage ${stages[s]}" \
            over_two_nodes "$recipe" 2 --zero.stage ${stages[s]} --zero.hsdp 2 "$@"
    done
}
product gpt
product gpt --train.dtype bf16
product gpt --train.grain 2 --train.recompute selective
product llama --train.dtype bf16 --train.grain 4
product mlp
product cnn
finish
