#!/bin/bash
# test_train_scale.sh -- optim.loss_scale: powers of two change no bit of a model; gradients that are not finite on one
# rank skip the step on all ranks and lower the scale; gradients in f16 on the way between ranks train as well as f32.
#
#   tests/test_train_scale.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 12, global_batch: 12, micro_batch: 2, eval_every: 6, eval_batches: 2 }
optim: { name: adamw, lr: 3e-3, clip: 0.5 }
checkpoint: { every: 1, keep: 99, consolidate: always }
YAML
learned() { grep -aE '^(validate|final)' out && grep -aoE '^step: .* grad_norm: +[0-9.]+' out; }
model() { printf '%s/checkpoints/step-%08d/model.safetensors' "$1" "$2"; }
# What follows the header, which has the step's number.
weights() { tail -c +$((9 + $(od -An -tu8 -N8 "$(model "$1" "$2")"))) "$(model "$1" "$2")"; }
same_weights() { cmp <(weights "$1" "$2") <(weights "$1" "$3"); }
# Scale and skipped steps so far, of each step.
scales() { sed -nE 's/.*"loss_scale": ([^,]+), "skipped_steps": ([^,]+),.*/\1 \2/p' "$1/metrics.jsonl"; }
list() { scales "$1" | while read -r scale skipped; do echo -n "$scale/$skipped "; done; }

# --- a scale that is a power of two -----------------------------------------------------------------------------------
same() { # ranks, options: with 2^16 and without, the same output and the same weights; Adam's eps would show a rest of it
    local ranks=$1
    shift
    rm -rf plain scaled
    train "$ranks" --run.dir plain "$@" && learned >plain.out && ends_with 0 || return 1
    for scale in 65536 dynamic; do
        rm -rf scaled
        train "$ranks" --run.dir scaled --optim.loss_scale $scale "$@" && learned >scaled.out && ends_with 0 || return 1
        diff plain.out scaled.out && cmp "$(model plain 12)" "$(model scaled 12)" || return 1
        [ "$(scales scaled | sort -u)" = '65536 0' ] || { scales scaled; return 1; }
    done
}
claim 'f32, one rank: no bit changes' same 1
claim 'f32, 2 ranks' same 2
claim 'bf16, 3 ranks' same 3 --train.dtype bf16
claim 'without clipping' same 2 --optim.clip 0
for stage in 1 2 3 '3 --zero.copy rank'; do
    claim "ZeRO stage $stage, 2 ranks" same 2 --zero.stage $stage
    claim "ZeRO stage $stage, bf16, 3 ranks" same 3 --zero.stage $stage --train.dtype bf16
done
claim 'the log line shows it' prints '  scale: 65536  skipped: 0'
claim 'a run without shows no scale' test "$(grep -c loss_scale plain/metrics.jsonl)" = 0

# --- gradients that are not finite --------------------------------------------------------------------------------------
golden='1024/0 1024/0 2048/0 2048/0 4096/1 2048/1 2048/1 4096/1 4096/1 8192/1 8192/1 16384/1 '
skips() { # ranks, options: an overflow in step 5, where the scale is 4096
    local ranks=$1
    shift
    rm -rf over
    train "$ranks" --run.dir over --optim.loss_scale dynamic --optim.scale_init 1024 --optim.scale_interval 2 \
        --inject overflow@1:5 "$@" && ends_with 0 || return 1
    [ "$(list over)" = "$golden" ] || { list over; return 1; }
    same_weights over 4 5 || return 1 # no weight has changed
    for step in 3 5; do ! same_weights over $step $((step + 1)) >same || return 1; done
}
claim 'an overflow on one rank skips the step on both' skips 2
claim 'the log says so' prints 'step: 10 .* scale: 8192  skipped: 1'
claim 'on 3 ranks, in bf16' skips 3 --train.dtype bf16
claim 'several micro-batches, over wires' skips 2 --train.micro_batch 1 --comm.transport tcp
for stage in 1 2 3 '3 --zero.copy rank'; do
    claim "ZeRO stage $stage, 2 ranks: the step is skipped" skips 2 --zero.stage $stage
    claim "ZeRO stage $stage, bf16, 3 ranks: the step is skipped" skips 3 --zero.stage $stage --train.dtype bf16
done
claim 'gradients in f16 on the way: the step is skipped' skips 2 --ddp.hook f16
# A run that goes on from step 8 has the scale, the steps since it changed and the skipped ones of the whole run.
goes_on() {
    rm -rf on
    train 2 --run.dir on --optim.loss_scale dynamic --optim.scale_init 1024 --optim.scale_interval 2 \
        --checkpoint.resume over/checkpoints/step-00000008 && ends_with 0 || return 1
    [ "$(list on)" = "$(cut -d' ' -f9- <<<"$golden")" ] || { list on; return 1; }
    cmp "$(model on 12)" "$(model over 12)"
}
claim 'a step is skipped' skips 2
claim 'a run that goes on after it counts it, and ends the same' goes_on
claim "Megatron-LM's line has scale and skipped steps" skips 2 --log.format megatron --log.every 5
claim 'as its readers expect them' prints '\| loss scale: 4096\.0 \| grad norm: (inf|-?nan) \| number of skipped iterations:   1 \|'
later() { tail -n 1 <<<"$(grep -a 'number of skipped iterations' out)" | grep -q 'number of skipped iterations:   0 |' || { cat out; return 1; }; }
claim 'a later line counts its own steps alone' later

# What a scale does not help against.
ends_at() { train 2 --inject overflow@1:3 "$@"; ends_with 80; }
claim 'without a scale it ends the run' ends_at
claim 'with the parameter and the step' says ' in step 3 is not finite, though the loss is; no weight was changed'
claim 'with a scale that does not adapt, too' ends_at --optim.loss_scale 128
claim 'which says what would help' says 'is not finite with a loss scale of 128, though the loss is; no weight was changed by this step: set optim.loss_scale to a lower number, or to dynamic'
claim 'a scale of 1 is not what overflows' ends_at --optim.loss_scale dynamic --optim.scale_init 1
claim 'and the message says it' says 'with a loss scale of 1, though'
for bad in 0 -1 nan inf 1e39 1e-39 128x ''; do
    train 1 "--optim.loss_scale=$bad"
    claim "a scale of '$bad' is refused" ends_with 78
    claim 'by its key' says 'optim.loss_scale is '
done
claim 'a loss that is not finite ends the run with any scale' \
    eval "train 2 --optim.loss_scale dynamic --inject nan@1:3; ends_with 80 && says 'the loss of rank 1 in step 3 is not finite'"

# --- f16 on the way between ranks ------------------------------------------------------------------------------------------
# A gradient is rounded to within 2^-11 of itself. Twelve steps of Adam, each off by that, move the loss by less than 2^-9.
train 2 --run.dir wide && final >wide.out
near() { # options; of the last loss
    rm -rf f16
    train 2 --run.dir f16 --ddp.hook f16 "$@" && ends_with 0 || return 1
    ! cmp -s "$(model wide 12)" "$(model f16 12)" || return 1
    awk -v a="$(printf '%g' "$(loss wide.out)")" -v b="$(printf '%g' "$(loss)")" \
        'BEGIN { d = (a - b) / a; exit !(d < 1 / 512 && d > -1 / 512) }' || { cat wide.out; final; return 1; }
}
claim 'the default scale: the model learns as in f32' near --optim.loss_scale dynamic
# With 2^24, elements above 2^-8 overflow: the first steps are skipped until the scale has come down.
backs_off() {
    local skipped first last
    rm -rf f16
    train 2 --run.dir f16 --ddp.hook f16 --optim.loss_scale dynamic --optim.scale_init 16777216 && ends_with 0 || return 1
    skipped=$(scales f16 | tail -1 | cut -d' ' -f2)
    [ "$skipped" -ge 2 ] && same_weights f16 1 "$skipped" || { scales f16; return 1; }
    ! same_weights f16 1 $((skipped + 1)) >same || return 1
    [ "$(scales f16 | tail -1 | cut -d' ' -f1)" = $((16777216 >> skipped)) ] || { scales f16; return 1; }
    first=$(sed -nE '1s/.*global_avg_loss": ([^,]+),.*/\1/p' f16/metrics.jsonl)
    last=$(sed -nE '$s/.*global_avg_loss": ([^,]+),.*/\1/p' f16/metrics.jsonl)
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a) }' || { echo "$first $last"; return 1; }
}
claim 'a scale that f16 does not hold backs off, and then the model learns' backs_off
# Gradients times 2^-40 are below 2^-25, half of the least number of f16: none is left, and SGD changes no weight.
vanish() {
    rm -rf f16
    train 2 --run.dir f16 --ddp.hook f16 --optim.name sgd --optim.loss_scale 9.094947017729282e-13 && ends_with 0 || return 1
    same_weights f16 1 12 && [ "$(scales f16 | tail -1)" = '9.0949470177292824e-13 0' ]
}
claim 'gradients are scaled before they are rounded' vanish
finish
