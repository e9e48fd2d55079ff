#!/bin/bash
# test_train_zero_losses.sh -- 50 steps of a GPT with micro-batches, clipping and recompute: the stages of ZeRO have DDP's
# losses, to the bit where gradients of ranks are added in one order, and to rounding where they are not.
#
#   tests/test_train_zero_losses.sh BUILD
. "$(dirname "$0")/harness_train.sh"
steps=50
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: $steps, global_batch: 24, micro_batch: 2 }
optim: { name: adamw, lr: 3e-3, clip: 0.5 }
log: { every: 1 }
YAML

losses() { sed -nE 's/.*"loss_metrics\/global_avg_loss": ([^,]+),.*/\1/p' "$1/metrics.jsonl"; } # 17 digits: exact

# Trains; leaves $1.losses and $1.final: the last loss and the digest of the model.
run() { # name, ranks, options...
    local name=$1 ranks=$2
    shift 2
    rm -rf "$name" "$name.losses" "$name.final"
    train "$ranks" --run.dir "$name" "$@"
    ends_with 0 || return 1
    losses "$name" >"$name.losses"
    final >"$name.final"
    [ "$(wc -l <"$name.losses")" = $steps ] || { echo "$(wc -l <"$name.losses") losses, expected $steps"; return 1; }
}
clipped() { # some steps, and not all
    awk -F'"grad_norm": ' 'NF > 1 && $2 + 0 > 0.5 { n++ } END { print n + 0 " of '$steps' steps were clipped"; exit !(n > 0 && n < '$steps') }' \
        ddp/metrics.jsonl
}
same() { # ranks, options...: the losses and the model of ddp
    run zero "$@" && diff ddp.losses zero.losses && diff ddp.final zero.final
}
near() { # options...: losses within 1e-6 of those of ddp, relative
    run zero "$@" || return 1
    paste ddp.losses zero.losses |
        awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d } END { print "the losses differ by " most; exit !(most <= 1e-6) }'
}
differ() { ! cmp -s ddp.losses zero.losses; }

# --- one order of sums: all micro-batches are added up, then ranks in ascending order --------------------------------
# DDP keeps all activations; the stages recompute them.
for dtype in f32 bf16; do
    for ranks in 2 3 4; do
        claim "$dtype, $ranks ranks: DDP" run ddp $ranks --train.dtype $dtype
        claim "$dtype, $ranks ranks: some steps are clipped" clipped
        for stage in '1' '2 --zero.reduce last' '3 --zero.reduce last' '3 --zero.reduce last --zero.copy rank'; do
            claim "$dtype, $ranks ranks, stage $stage: DDP's losses and model" \
                same $ranks --train.dtype $dtype --train.recompute full --zero.stage $stage
        done
    done
    for stage in 1 '2 --zero.reduce last' '3 --zero.reduce last' '3 --zero.reduce last --zero.copy rank'; do
        claim "$dtype, 4 ranks, two sets of shards, stage $stage: DDP's losses and model" \
            same 4 --train.dtype $dtype --train.recompute full --zero.stage $stage --zero.hsdp 2
    done
    claim "$dtype: gathered once a step, selective recomputation: the same" same 4 --train.dtype $dtype --train.recompute selective \
        --zero.stage 3 --zero.reduce last --zero.copy rank --zero.reshard never
done

# --- every backward is reduced: ranks are added up first ---------------------------------------------------------------
# Stages 2 and 3 add in the same order as each other.
for dtype in f32 bf16; do
    claim "$dtype, every backward reduced: stage 2" run ddp 3 --train.dtype $dtype --zero.stage 2
    for copy in host rank; do
        claim "$dtype, every backward reduced, zero.copy $copy: stage 2's losses and model" \
            same 3 --train.dtype $dtype --train.recompute full --zero.stage 3 --zero.copy $copy
    done
done
# DDP adds in another order. AdamW divides by the size of a gradient, so one that is next to nothing turns rounding into
# a step of the learning rate: momentum, which does not, is what compares two orders.
sgd='--optim.name sgd --optim.lr 0.05 --optim.momentum 0.9'
claim 'momentum: DDP' run ddp 3 $sgd
for stage in '2' '3' '3 --zero.copy rank'; do
    claim "every backward reduced, stage $stage: DDP's losses to 1e-6" near 3 $sgd --train.recompute full --zero.stage $stage
    claim "every backward reduced, stage $stage: another order of sums" differ
done

# --- over tcp -----------------------------------------------------------------------------------------------------------
# A sum of two has one order.
claim 'bf16, 2 ranks: DDP' run ddp 2 --train.dtype bf16
for stage in '0' '1' '2 --zero.reduce last' '3 --zero.reduce last --zero.copy rank'; do
    claim "bf16, tcp, 2 ranks, stage $stage: the losses and the model of shared memory" \
        same 2 --train.dtype bf16 --train.recompute full --zero.stage $stage --comm.transport tcp --comm.algo ring
done
# In a ring of three sums begin with another rank in each part of a bucket.
claim 'momentum: DDP, once more' run ddp 3 $sgd
ring='--comm.transport tcp --comm.algo ring'
for stage in '0' '1' '2' '2 --zero.reduce last' '3 --zero.copy rank' '3 --zero.copy rank --zero.reduce last'; do
    claim "tcp, stage $stage: the losses of shared memory to 1e-6" near 3 $sgd $ring --train.recompute full --zero.stage $stage
    claim "tcp, stage $stage: another order of sums" differ
done
claim 'momentum: DDP on 4 ranks' run ddp 4 $sgd
for stage in 1 '2' '3 --zero.copy rank' '3 --zero.copy rank --zero.reduce last'; do
    claim "tcp, two sets of shards, stage $stage: the losses of shared memory to 1e-6" \
        near 4 $sgd $ring --train.recompute full --zero.stage $stage --zero.hsdp 2
    claim "tcp, two sets of shards, stage $stage: another order of sums" differ
done
finish
