#!/bin/bash
# test_train_compare.sh -- lockstep train --compare RUN and lockstep ckpt diff of two runs: the first step, tensor and element where
# they part, on several ranks in every stage of ZeRO.
#
#   tests/test_train_compare.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16 }
data: { path: $tmp/tokens }
train: { steps: 5, global_batch: 24, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01, clip: 0.5 }
log: { tensorboard: false, every: 1 }
checkpoint: { keep: 9 }
YAML
gpt() { # ranks, more options
    rm -rf "${here:=now}"
    timeout -k 5 100 "$lockstep" train gpt.yaml -n "$@" --run.dir $here >out 2>err
    code=$?
}
# What `ckpt diff` says of the first tensor of two checkpoints, as --compare says it.
first_of() {
    "$lockstep" ckpt diff "$1" "$2" | grep -v '^state\.' | head -1 |
        sed -E "s/^(.*): ([0-9]+) of [0-9]+ elements differ, the first at (.*): (.*) and (.*); (at most .*)$/tensor '\1' at \3: \4, there \5; \2 elements of it differ, \6/"
}
parts_at() { # step, text that follows: now parted from then there, as the message and as `ckpt diff` of both say
    says "error[diverged]: step $1 is the first that differs from then: $2$(first_of now/checkpoints/step-0000000$1 then/checkpoints/step-0000000$1)"
}
number() { sed -n "$1p" "$2/metrics.jsonl" | sed -E "s|.*\"$3\": ([^,]+),.*|\1|"; }
for stage in 0 1 2 3; do
    here=then gpt 3 --zero.stage $stage --checkpoint.every 2
    here=now
    gpt 3 --zero.stage $stage --compare then
    claim "stage $stage: the same run: 0" ends_with 0
    claim "stage $stage: what was compared" prints '^compared with then: 5 steps and 3 checkpoints are equal to the bit$'
    gpt 3 --zero.stage $stage --optim.betas 0.9,0.99 --checkpoint.every 2 --compare then
    claim "stage $stage: another beta: 81" ends_with 81
    claim "stage $stage: another beta: numbers, tensor, element and distance" parts_at 2 \
        "loss $(number 2 now loss_metrics/global_avg_loss), there $(number 2 then loss_metrics/global_avg_loss); grad_norm $(number 2 now grad_norm), there $(number 2 then grad_norm); "
    claim "stage $stage: it stops there" test "$(wc -l <now/metrics.jsonl)" = 2
    claim "stage $stage: and one rank reports it" test "$(grep -c '^lockstep train: error' err)" = 1
done
# Values alone: the checkpoint of step 3 is one of another run. Nothing of the numbers before differs.
rm -r then/checkpoints/step-0000000[245]
gpt 3 --zero.stage 3 --compare then
claim 'no checkpoints are there' prints '^compared with then: 5 steps and 0 checkpoints are equal to the bit$'
here=other gpt 2 --train.steps 3 --optim.betas 0.9,0.99 --train.seed 6
cp -r other/checkpoints/step-00000003 then/checkpoints
here=now
gpt 3 --zero.stage 3 --checkpoint.every 1 --compare then
claim 'a checkpoint of 2 ranks and another seed: step, tensor, element' parts_at 3 ''
claim 'which is a tensor of the optimizer, the first by name' says "tensor 'optim.exp_avg.transformer.h.0.attn.c_attn.bias'"
rm -r then/checkpoints/step-00000003
gpt 1 --train.seed 6 --compare then
claim 'without a checkpoint: 81' ends_with 81
claim 'without a checkpoint: the numbers, and why there is no tensor' says "; no checkpoint of this step is there to compare tensors with"
claim 'without a checkpoint: the first step' says 'step 1 is the first that differs from then: loss '
here=then gpt 2 --ranks-as threads --zero.stage 2 --checkpoint.every 2
here=now
gpt 2 --ranks-as threads --zero.stage 2 --compare then
claim 'threads' prints '^compared with then: 5 steps and 3 checkpoints are equal'
gpt 2 --zero.stage 2 --checkpoint.every 2 --inject kill@1:4
timeout -k 5 100 "$lockstep" train gpt.yaml -n 2 --zero.stage 2 --run.dir now2 --checkpoint.resume now --compare then >out 2>err
claim 'a resumed run, from where it goes on' prints '^compared with then: 3 steps and 2 checkpoints are equal'
gpt 2 --zero.stage 2 --train.steps 7 --compare then
claim 'more steps than were recorded' prints '^compared with then: 5 steps and 3 checkpoints are equal'
claim 'more steps than were recorded: 0' ends_with 0

# --- sgd has no other tensors than the model's
sgd() { gpt "$@" --optim.name sgd --optim.lr 0.1 --zero.stage 2; }
here=then sgd 3 --train.steps 2
for other in 0.0 0.1; do # all weights differ; none does
    here=now
    sgd 3 --train.steps 2 --optim.weight_decay $other --compare then
    [ $other = 0.0 ] && claim 'sgd: the same' ends_with 0
    [ $other = 0.0 ] || claim 'sgd: numbers, tensor, element and distance' parts_at 2 \
        "loss $(number 2 now loss_metrics/global_avg_loss), there $(number 2 then loss_metrics/global_avg_loss); grad_norm $(number 2 now grad_norm), there $(number 2 then grad_norm); "
done
# A little decay of matrices alone changes some elements of the first one by name, which files have transposed.
here=then sgd 3 --train.steps 1 --optim.decay matrices
here=now sgd 3 --train.steps 1 --optim.decay matrices --optim.weight_decay 3e-8 --compare then
claim 'a transposed matrix: tensor, element and distance' parts_at 1 ''
here=then gpt 2 --zero.stage 2 --checkpoint.every 2

# --- ckpt diff of two runs
here=now
gpt 2 --zero.stage 2 --checkpoint.every 2
"$lockstep" ckpt diff now then >out
claim 'ckpt diff: runs that are equal' test "$?" = 0
claim 'ckpt diff: each common step' test "$(cut -d: -f1 out | xargs)" = 'step-00000002 step-00000004 step-00000005'
here=now gpt 2 --zero.stage 2 --checkpoint.every 4 --train.steps 5 --optim.betas 0.9,0.99
"$lockstep" ckpt diff now then >out
claim 'ckpt diff: runs that differ: 1' test "$?" = 1
claim 'ckpt diff: at the first common step' prints '^step-00000004: optim.exp_avg.transformer.h.0.attn.c_attn.bias: [0-9]+ of 48 elements differ, the first at \[[0-9]+\]: .* ulp\)$'
claim 'ckpt diff: and no later one' fails_with 1 '' grep step-00000005 out
here=now gpt 2 --train.steps 3
claim 'ckpt diff: no common step: 65' fails_with 65 'have no step with a checkpoint in both' "$lockstep" ckpt diff now then

# --- what cannot be compared
here=now
refused() { # status, text, options...
    local status=$1 text=$2
    shift 2
    gpt 2 --zero.stage 2 "$@"
    ends_with "$status" && says "$text"
}
claim 'no run' refused 65 'tokens is no run' --compare tokens
cp -r then short && sed -i 3,5d short/metrics.jsonl
claim 'none of its steps' refused 65 '--compare short: has no step from 5 to 5' --checkpoint.resume then/checkpoints/step-00000004 --compare short
echo nonsense >short/metrics.jsonl
claim 'not JSON' refused 65 'line 1 is no JSON object with a step' --compare short
claim 'another model' refused 81 'step 1 is the first that differs' --model.d_model 24 --compare then
here=then sgd 2 --checkpoint.every 1
claim 'another optimizer: state that the other has not' refused 65 "has no tensor 'optim.momentum_buffer." --optim.name sgd --optim.lr 0.1 --optim.momentum 0.9 --compare then
here=then gpt 2 --zero.stage 2 --checkpoint.every 2
claim 'another optimizer: the numbers differ' refused 81 "step 2 is the first that differs from then: loss " --optim.name sgd --optim.momentum 0.9 --compare then
claim 'another optimizer: and the checkpoint is none to compare with' says "; rank 0: then/checkpoints/step-00000002: has no tensor 'optim.momentum_buffer."
printf '\xff' | dd of=then/checkpoints/step-00000002/sharded/shard-00002-model-00001-of-00001.safetensors bs=1 seek=9000 conv=notrunc status=none
claim 'a damaged checkpoint' refused 65 'then/checkpoints/step-00000002/sharded/shard-00002' --compare then
claim 'with --eval-only' refused 78 'compare belongs to training' --eval-only --model.load other --compare then
finish
