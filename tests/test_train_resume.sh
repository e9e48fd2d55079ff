#!/bin/bash
# test_train_resume.sh -- lockstep train --checkpoint.resume: a run that was killed goes on to the very same end, in its own
# folder, under every stage of ZeRO, in f32 and bf16; on other numbers of ranks; and what is refused.
#
#   tests/test_train_resume.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
# 14 steps are more than an epoch of 12; dropout, clipping, two micro-batches, warm-up and a cosine
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16, embd_dropout: 0.1, resid_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { steps: 14, global_batch: 24, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01, clip: 0.5, schedule: cosine, warmup: 4 }
log: { tensorboard: false, every: 1 }
YAML
gpt() { # ranks, more options
    timeout -k 5 100 "$lockstep" train gpt.yaml --nproc-per-node "$@" >out 2>err
    code=$?
}
losses() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_metrics\/global_avg_loss": ([^,]+),.*/\1 \2/p' "$1/metrics.jsonl"; }
same_metrics() { [ "$(losses "$1" | wc -l)" -ge 14 ] && diff <(losses "$1") <(losses "$2"); }

# --- the same end, to the bit ------------------------------------------------------------------------------
# Killed in step 11, resumed from step 8.
killed_and_resumed() { # name, ranks, options
    local name=$1 ranks=$2
    shift 2
    rm -rf whole cut
    gpt "$ranks" --run.dir whole "$@"
    local want
    want=$(final)
    gpt "$ranks" --run.dir cut --checkpoint.every 4 --checkpoint.resume auto --inject "kill@$((ranks - 1)):11" "$@"
    [ "$ranks" = 1 ] || claim "$name: killed" ends_with 82
    [ "$ranks" = 1 ] || claim "$name: the report says how to go on" says '  to go on  : the same command with --checkpoint.resume cut/checkpoints/step-00000008'
    gpt "$ranks" --run.dir cut --checkpoint.every 4 --checkpoint.resume auto "$@"
    claim "$name: goes on from step 8" prints "^resuming step 8 of cut/checkpoints/step-00000008, saved by $ranks rank"
    claim "$name: the same end to the bit" test "$(final)" = "$want"
    claim "$name: metrics without a seam" same_metrics whole cut
    claim "$name: nothing temporary is left" test -z "$(find cut -name '.*.tmp')"
}
for stage in 0 1 2 3; do killed_and_resumed "stage $stage" 2 --zero.stage $stage; done
killed_and_resumed 'stage 3, private buffers' 3 --zero.stage 3 --zero.copy rank
killed_and_resumed 'bf16, stage 0' 2 --train.dtype bf16 --train.micro_batch 4
for stage in 1 3; do killed_and_resumed "bf16, stage $stage" 3 --zero.stage $stage --train.dtype bf16; done
killed_and_resumed 'one rank' 1 2>/dev/null # the shell says that it was killed
killed_and_resumed 'loss scale' 2 --optim.loss_scale dynamic --optim.scale_interval 3 --optim.scale_init 1024
killed_and_resumed 'a log line now and then' 2 --log.every 50
killed_and_resumed 'tcp' 2 --comm.transport tcp
killed_and_resumed 'sets of shards' 4 --zero.stage 2 --zero.hsdp 2

# --- features, over an epoch's end, and a stop on request ------------------------------------------------
mlp() { train "$@" --train.steps 30 --checkpoint.every 7; } # an epoch is 21 steps
mlp 2 --run.dir images
want=$(final)
mlp 2 --run.dir images2 --checkpoint.resume auto --inject kill@0:29
mlp 2 --run.dir images2 --checkpoint.resume auto
claim 'images: goes on from step 28' prints '^resuming step 28 of images2'
claim 'images: the same end' test "$(final)" = "$want"
claim 'images: metrics without a seam' same_metrics images images2
claim 'the two newest checkpoints are left' test "$(echo $(ls images2/checkpoints))" = 'step-00000028 step-00000030'
mlp 2 --run.dir images2 --checkpoint.resume auto
claim 'nothing left to do: exit 0' ends_with 0
claim 'nothing left to do: the same line' test "$(final)" = "$want"
claim 'nothing left to do: metrics are as they were' same_metrics images images2
"$lockstep" train base.yaml -n 2 --train.steps 2000 --run.dir stopped --checkpoint.resume auto >out 2>err &
until_true grep -qs '"step": 40' stopped/metrics.jsonl
kill -TERM $!
wait $!
code=$?
claim 'SIGTERM: 75' ends_with 75
stopped=$(echo stopped/checkpoints/step-*)
step=$((10#${stopped##*-}))
train 2 --train.steps $((step + 3)) --run.dir stopped --checkpoint.resume auto
claim 'SIGTERM: goes on from its last step' prints "^resuming step $step of "
last=$(final)
train 2 --train.steps $((step + 3)) --run.dir unstopped
claim 'SIGTERM: the same end' test "$(final)" = "$last"

# --- on another number of ranks and another stage --------------------------------------------------------
near() { # losses of two runs agree to 1e-6
    paste <(losses "$1") <(losses "$2") | awk '{ d = ($2 - $4) / $2; if (d < 0) d = -d; if ($1 != $3 || d > 1e-6) { print; bad = 1 } n++ } END { exit bad || n != 14 }'
}
rm -rf whole
gpt 2 --run.dir whole
for other in '1 0' '3 1' '4 2' '8 3' '4 0'; do
    read -r ranks stage <<<"$other"
    rm -rf cut
    gpt 2 --run.dir cut --zero.stage 3 --checkpoint.every 5 --checkpoint.resume auto --inject kill@1:13
    gpt "$ranks" --run.dir cut --zero.stage "$stage" --checkpoint.resume auto
    claim "from 2 ranks to $ranks, stage $stage: goes on from step 10" prints '^resuming step 10 of cut/.*, saved by 2 ranks'
    claim "from 2 ranks to $ranks, stage $stage: losses agree" near whole cut
done

# --- from another folder -----------------------------------------------------------------------------------
rm -rf cut
gpt 2 --run.dir cut --checkpoint.every 4
gpt 2 --run.dir copy --checkpoint.resume cut/checkpoints/step-00000012
claim 'PATH: a step' prints '^resuming step 12 of cut/checkpoints/step-00000012'
claim 'PATH: in a folder of its own' test -e copy/checkpoints/step-00000014/manifest.json
claim 'PATH: metrics begin there' test "$(losses copy | head -1)" = "$(losses cut | sed -n 13p)"
gpt 2 --run.dir copy2 --checkpoint.resume cut --train.steps 16
claim 'PATH: a run, with more steps: that is said' prints '^resuming step 14 of cut/.*; changed since: train.steps 14 -> 16'
gpt 2 --run.name named --checkpoint.resume auto --train.steps 2
gpt 2 --run.name named --checkpoint.resume auto --train.steps 3
claim 'auto without run.dir: runs/<run.name>' prints '^resuming step 2 of runs/named/checkpoints/step-00000002'
claim 'and no other folder' test "$(ls runs)" = named

# --- a model in the ranks' files alone ------------------------------------------------------------------------
gpt 2 --run.dir bare --zero.stage 2 --train.steps 6 --checkpoint.consolidate never
claim 'no model.safetensors' test ! -e bare/checkpoints/step-00000006/model.safetensors
gpt 2 --run.dir full --train.steps 6
write() { "$lockstep" generate "$1" --prompt 'Rank 7' --tokens 9 --seed 3 2>/dev/null; }
written() { [ -n "$(write full)" ] && [ "$(write "$1")" = "$(write full)" ]; }
claim 'generate reads it from the run' written bare
claim 'generate reads it from its folder' written bare/checkpoints/step-00000006
evaluated() { gpt 2 --eval-only --model.load "$1" && grep val_loss out; }
claim 'model.load reads it' test "$(evaluated bare)" = "$(evaluated full)" -a "$code" = 0
claim 'model.load reads it from its folder' test "$(evaluated bare/checkpoints/step-00000006)" = "$(evaluated full)" -a "$code" = 0
"$lockstep" export bare --out hf >/dev/null
claim 'export writes one file of it' cmp hf/model.safetensors <("$lockstep" export full --out hf2 >/dev/null && cat hf2/model.safetensors)
mlp 2 --run.dir bare-mlp --train.steps 2 --checkpoint.consolidate never
train 2 --eval-only --model.load bare-mlp
claim 'model.load reads an mlp, too' ends_with 0

# --- damage ------------------------------------------------------------------------------------------------
flip() { # file, byte from its end
    local n
    n=$(stat -c %s "$1")
    printf '\xff' | dd of="$1" bs=1 seek=$((n - $2)) conv=notrunc status=none
}
flip cut/checkpoints/step-00000014/sharded/shard-00002-model-00001-of-00001.safetensors 9
gpt 2 --run.dir cut --checkpoint.resume auto
claim 'a damaged checkpoint is named' says 'cut/checkpoints/step-00000014 is damaged and is skipped: '
claim 'and the one before is taken' prints '^resuming step 12 of '
claim 'to the same end' test "$(final | cut -d' ' -f2)" = step=14
flip cut/checkpoints/step-00000014/manifest.json 90
flip cut/checkpoints/step-00000012/manifest.json 90
gpt 2 --run.dir cut --checkpoint.resume auto
claim 'all damaged: 65' ends_with 65
claim 'all damaged: nothing is begun anew' says 'none of its 2 checkpoints is whole'
gpt 2 --run.dir copy3 --checkpoint.resume cut/checkpoints/step-00000012
claim 'the one that is named is damaged: 65' ends_with 65

# --- another run ---------------------------------------------------------------------------------------------
refused() { # text, options...
    local text=$1
    shift
    rm -rf other
    gpt 2 --run.dir other --checkpoint.resume copy "$@"
    ends_with 78 && says "$text"
}
claim 'another model' refused 'model.d_model 16 -> 32' --model.d_model 32
claim 'another learning rate' refused 'optim.lr 0.01 -> 0.02' --optim.lr 0.02
claim 'all that differ are named' refused 'train.global_batch 24 -> 12, train.seed 5 -> 6' --train.seed 6 --train.global_batch 12
claim 'and what to do instead' says '--checkpoint.resume never --model.load copy/checkpoints/step-00000014'
claim 'fewer steps' refused 'copy/checkpoints/step-00000014 is of step 14, and the run has 13 steps' --train.steps 13
sed 's/what it has/it has what/' text.txt >other.txt # the same characters
"$lockstep" data prepare other.txt --out others --tokenizer char --val 0.1 >/dev/null
claim 'other data' refused 'the data set has as many samples as when' --data.path others --train.steps 20
head -50 text.txt >short.txt
"$lockstep" data prepare short.txt --out shorter --tokenizer char --val 0.1 >/dev/null
claim 'less data' refused 'the data set has' --data.path shorter --train.steps 20
sed p text.txt >long.txt # each line twice
"$lockstep" data prepare long.txt --out longer --tokenizer char --val 0.1 >/dev/null
claim 'more data' refused ' samples, and had ' --data.path longer --train.steps 20
claim 'and nothing was written' test ! -e other
gpt 2 --run.dir other --checkpoint.resume copy --train.steps 15 --train.sample_every 5 --train.sample_tokens 3
claim 'what samples are drawn may change' ends_with 0
claim 'and the run goes on' prints '^resuming step 14 of copy/checkpoints/step-00000014'
claim 'with --eval-only' refused '--eval-only reads model.load, and checkpoint.resume copy goes on' --eval-only --model.load copy
gpt 2 --checkpoint.resume tokens --run.dir none
claim 'a folder without a checkpoint: 65' ends_with 65
claim 'a folder without a checkpoint is named' says 'checkpoint.resume tokens: there is no checkpoint'
finish
