#!/bin/bash
# test_train_resume_axes.sh -- a run that tensor and sequence parallel ranks saved goes on in other layouts (one rank, tp 4, cp 2,
# ZeRO stage 3, pipelines), and a run of each of these in that one: the losses are those of one rank within 1e-6, and what
# both end with, optimizer and all, differs by rounding. Ranks that share heads of keys, being more than these, save what one rank
# and other numbers of ranks load to the bit.
#
#   tests/test_train_resume_axes.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
# With the usual eps, 1e-8, a gradient that is 0 except for rounding, as of biases of keys, moves a weight by all of lr.
# An epoch ends after step 9.
cat >base.yaml <<YAML
data: { path: $tmp/tokens }
train: { steps: 12, global_batch: 24, seed: 5 }
optim: { name: adamw, lr: 0.01, eps: 1e-3, clip: 0.5, warmup: 4 }
log: { tensorboard: false }
YAML
dropout='embd_dropout: 0.1, attn_dropout: 0.1, resid_dropout: 0.1'
{ cat base.yaml; echo "model: { name: gpt2, n_layer: 2, n_head: 4, d_model: 16, seq_len: 16, $dropout }"; } >gpt2.yaml
{ cat base.yaml; echo 'model: { name: llama, n_layer: 2, n_head: 8, n_kv_head: 4, d_model: 32, seq_len: 16 }'; } >llama.yaml
{ cat base.yaml; echo 'model: { name: llama, n_layer: 2, n_head: 8, n_kv_head: 2, d_model: 32, seq_len: 16 }'; } >shared.yaml

declare -A layout=(
    [sp]='4 --parallel.tp 2 --parallel.sp true --zero.stage 1'
    [one]='1'
    [tp]='4 --parallel.tp 4'
    [tp2]='2 --parallel.tp 2'
    [tp8]='8 --parallel.tp 8'
    [tp_zero]='8 --parallel.tp 4 --parallel.sp true --zero.stage 1'
    [cp]='2 --parallel.cp 2'
    [zero]='2 --zero.stage 3'
    [pp]='2 --parallel.pp 2 --train.micro_batch 4'
    [pp_all]='8 --parallel.pp 2 --parallel.tp 2 --zero.stage 1 --train.micro_batch 3 --pipeline.schedule zb-v'
    [all]='8 --parallel.tp 2 --parallel.cp 2 --parallel.context gather --zero.stage 3 --zero.copy rank'
)
go() { # model, layout, folder, options
    local model=$1 ranks=${layout[$2]%% *} flags=${layout[$2]} dir=$3
    shift 3
    [[ $flags == *' '* ]] && flags=${flags#* } || flags=
    # shellcheck disable=SC2086
    timeout -k 5 100 "$lockstep" train "$model.yaml" --nproc-per-node "$ranks" $flags --run.dir "$dir" "$@" >"$dir.out" 2>"$dir.err" ||
        { cat "$dir.err"; return 1; }
}
losses() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_metrics\/global_avg_loss": ([^,]+),.*/\1 \2/p' "$1/metrics.jsonl"; }
near() { # of a model: 12 steps, and the largest difference of a loss
    paste <(losses "whole-$1") <(losses on) | awk '
        $1 != $3 { wrong = 1 }
        { d = $2 - $4; if (d < 0) d = -d; if (d > most) most = d; n++ }
        END { if (wrong || n != 12 || most > 1e-6) { print n " steps, the largest difference is " most; exit 1 } }'
}
# Of a model: every tensor of the last checkpoint. 12 steps round a weight near 1 by 1e-7 each.
within_rounding() {
    "$lockstep" ckpt diff "whole-$1/checkpoints/step-00000012" on/checkpoints/step-00000012 --json >diff.json
    python3 - diff.json <<'PY'
import json, sys
found = json.load(open(sys.argv[1]))
apart = [t for t in found["differ"] if t["why"] != "values" or not t["most_apart"] <= 2e-6]
print("\n".join(str(t) for t in apart), found["tensors"], "tensors")
sys.exit(1 if apart or found["tensors"] < 60 else 0)
PY
}
saved_as_it_ended() { # a run's checkpoint has the model of its final line
    [ "$("$lockstep" ckpt digest "$1/checkpoints/step-00000006" | grep -oE '[0-9a-f]{32}' | head -1)" = "$(sed -nE '$s/.*digest=//p' "$1.out")" ]
}
goes_on() { # model, from, to
    rm -rf on on.*
    cp -r "$1-$2" on
    go "$1" "$3" on --checkpoint.resume auto && grep -q '^resuming step 6 of on/' on.out
}
# model, from, to: all tensors, optimizer and all, that `to` writes after it has read them and taken no step.
reads_to_the_bit() {
    rm -rf read read.* again
    go "$1" "$3" read --train.steps 6 --checkpoint.every 6 --checkpoint.resume "$1-$2/checkpoints/step-00000006" --checkpoint.dir again &&
        "$lockstep" ckpt diff "$1-$2/checkpoints/step-00000006" again/step-00000006 | tee diff.txt | grep -qE '^the same 93 tensors, to the bit' ||
        { cat diff.txt; return 1; }
}

for model in gpt2 llama; do
    claim "$model: one rank" go $model one whole-$model
    for from in sp one tp cp zero pp pp_all all; do
        claim "$model: $from saves step 6" go $model $from $model-$from --train.steps 6 --checkpoint.every 6
        claim "$model: $from: the checkpoint is the model of the final line" saved_as_it_ended $model-$from
    done
    for way in 'sp one' 'sp tp' 'sp cp' 'sp zero' 'sp all' 'sp pp' 'pp sp' 'pp one' 'one pp' 'pp_all zero' 'pp pp_all' 'one sp' 'tp sp' 'cp sp' 'zero sp' 'all sp'; do
        read -r from to <<<"$way"
        claim "$model: from $from to $to: it goes on" goes_on $model "$from" "$to"
        claim "$model: from $from to $to: losses of one rank" near $model
        claim "$model: from $from to $to: the end differs by rounding" within_rounding $model
    done
done
claim '2 heads of keys: one rank' go shared one whole-shared
for from in one tp2 tp tp8 tp_zero; do
    claim "2 heads of keys: $from saves step 6" go shared $from shared-$from --train.steps 6 --checkpoint.every 6
done
for way in 'tp one' 'tp tp2' 'tp tp8' 'tp8 one' 'tp8 tp' 'tp8 tp_zero' 'tp_zero one' 'tp_zero tp8' 'one tp' 'tp2 tp8' 'tp pp'; do
    read -r from to <<<"$way"
    claim "2 heads of keys: from $from to $to: to the bit" reads_to_the_bit shared "$from" "$to"
    claim "2 heads of keys: from $from to $to: it goes on" goes_on shared "$from" "$to"
    claim "2 heads of keys: from $from to $to: losses of one rank" near shared
done
finish
