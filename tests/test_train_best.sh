#!/bin/bash
# test_train_best.sh -- checkpoint.best: the checkpoint of the best evaluation stays beside the newest ones, and is named.
. "$(dirname "$0")/harness_train.sh"
. "$source_dir/tests/harness_disk.sh"
often=(--train.steps 40 --train.eval_every 3 --checkpoint.every 10 --optim.lr 4 --optim.warmup 40) # a rate that grows until it spoils the model

# The step of the best of a key in metrics.jsonl; $3: up to which step. The first of equal ones.
best_of() { # folder, loss|accuracy, last step
    sed -nE "s/^\{\"step\": ([0-9]+),.*\"eval\/$2\": ([^,}]+).*/\1 \2/p" "$1/metrics.jsonl" |
        awk -v metric="$2" -v last="$3" '$1 > last { next } !n++ || (metric == "loss" ? $2 < best : $2 > best) { best = $2; step = $1 } END { printf "step-%08d", step }'
}
named() { cat "$1/checkpoints/best"; }
left() { (cd "$1/checkpoints" && echo step-*); }
for metric in loss accuracy; do
    for async in false true; do
        run=$metric-$async
        train 2 "${often[@]}" --checkpoint.best $metric --checkpoint.async $async --run.dir $run
        best=$(best_of $run $metric 40)
        claim "$run: ends in order" ends_with 0
        claim "$run: the file names the best of metrics.jsonl" test "$(named $run)" = "$best"
        claim "$run: which is neither one of the newest nor one that is due" test "$best" '<' step-00000030 -a "${best%0}" = "$best"
        claim "$run: it stays beside the newest two" test "$(left $run)" = "$best step-00000030 step-00000040"
        claim "$run: all are whole" test "$("$lockstep" ckpt verify $run | wc -l)" = 3
        claim "$run: it is said" prints "^checkpoint: $run/checkpoints/$best, the best so far: $metric "
        claim "$run: the state has it" \
            eval '"$lockstep" ckpt show $run/checkpoints/step-00000040 | grep -q "best_step $((10#${best#step-})),"'
    done
done

# the weights are those of that evaluation
train 2 "${often[@]}" --checkpoint.best loss --run.dir again
value=$(sed -nE 's/^checkpoint: .*, the best so far: loss //p' out | tail -1)
train 1 --eval-only --model.load again/checkpoints/best
claim 'the file leads to the weights that were evaluated' prints "^test_loss=$value "
"$lockstep" ckpt show loss-false/checkpoints/best >out 2>err
claim 'ckpt show takes it' prints "^loss-false/checkpoints/$(named loss-false): step "

# --- going on ----------------------------------------------------------------------------------------------
train 2 "${often[@]}" --checkpoint.best loss --train.steps 20 --run.dir goes
train 2 "${often[@]}" --checkpoint.best loss --run.dir goes --checkpoint.resume auto
claim 'a run that goes on remembers the best' test "$(named goes)" = "$(best_of goes loss 40)"
claim 'a run that goes on: the same as one that does not stop' test "$(named goes)" = "$(named loss-false)"
claim 'a run that goes on keeps it' test "$(left goes)" = "$(left loss-false)"
train 2 "${often[@]}" --checkpoint.best loss --train.steps 41 --run.dir fork --checkpoint.resume loss-false/checkpoints/best
best=$(named loss-false)
claim 'a run goes on from the best one' prints "^resuming step $((10#${best#step-})) of loss-false/checkpoints/$best"
printf '../../loss-false\n' >goes/checkpoints/best
train 1 --eval-only --model.load goes/checkpoints/best
claim 'a file that leads elsewhere is refused' ends_with 65
claim 'a file that leads elsewhere: what is expected' says 'expected the name of a folder step-XXXXXXXX beside it'

# --- a save that fails ----------------------------------------------------------------------------------------
FULL=$best. LD_PRELOAD=$tmp/slow.so train 2 "${often[@]}" --checkpoint.best loss --run.dir full
claim 'the best one cannot be saved: training goes on' ends_with 0
claim 'the best one cannot be saved: the file names the best of the others' \
    test "$(named full)" = "$(sed -i "/\"step\": $((10#${best#step-})),/d" full/metrics.jsonl; best_of full loss 40)"
claim 'the best one cannot be saved: all that are left are whole' "$lockstep" ckpt verify full

# --- refused --------------------------------------------------------------------------------------------------
for ((i = 0; i < 40; i++)); do echo "A rank waits for $((i * 7919 % 97)) others, and they for it."; done >text.txt
"$lockstep" data prepare text.txt --out tokens --tokenizer char --val 0.2 >/dev/null
lm=(--model.name gpt2 --model.n_layer 1 --model.n_head 2 --model.d_model 8 --data.path tokens --train.seq_len 8 --train.global_batch 12 --train.steps 2)
timeout 60 "$lockstep" train "${lm[@]}" --checkpoint.best accuracy >out 2>err
code=$?
claim 'the accuracy of a language model: refused' ends_with 78
claim 'the accuracy of a language model: what to do' says 'an evaluation of gpt2 has a loss alone: set it to loss'
timeout 60 "$lockstep" train "${lm[@]}" --checkpoint.best loss --run.dir lm >out 2>err
claim 'the loss of a language model' test "$(named lm)" = step-00000002
rm tokens/val.bin
timeout 60 "$lockstep" train "${lm[@]}" --checkpoint.best loss >out 2>err
code=$?
claim 'nothing to evaluate on: refused' ends_with 78
claim 'nothing to evaluate on: and named' says 'checkpoint.best loss: there is nothing to evaluate on: no val.bin is beside tokens'
finish
