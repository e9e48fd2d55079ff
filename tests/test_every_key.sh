#!/bin/bash
# test_every_key.sh -- every key of `lockstep train` and every flag of every other command does something that shows, or is
# refused. Each row fails where the key is ignored; a key without a row fails at the end.
#
#   tests/test_every_key.sh BUILD
. "$(dirname "$0")/harness_train.sh"
. "$source_dir/tests/harness_rows.sh"
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCKSTEP_DEBUG
printf '{ "lockstep_peak": 1, "host": "%s", "peaks": [{ "dtype": "float", "threads": 1, "gflops_per_thread": 50 }, %s] }\n' \
    "$(uname -n)" '{ "dtype": "bfloat16", "threads": 1, "gflops_per_thread": 50 }' >peak.json
export LOCKSTEP_PEAK=$tmp/peak.json

# --- runs ---------------------------------------------------------------------------------------------
for ((i = 0; i < 40; i++)); do echo "A rank waits for $((i * 7919 % 97)) others, and they for it."; done >text.txt
"$lockstep" data prepare text.txt --out tokens --tokenizer char --val 0.2 >/dev/null || exit 1
cat >mlp.yaml <<YAML
model: { name: mlp, dims: [8, 6, 3] }
data: { name: synthetic }
train: { steps: 3, global_batch: 12 }
optim: { name: adam, lr: 0.01 }
log: { tensorboard: false, every: 1 }
YAML
sed 's/name: adam,/name: sgd,/' mlp.yaml >sgd.yaml
sed 's/name: mlp/name: timed/' mlp.yaml >timed.yaml
sed 's/8, 6, 3/8, 32, 32, 3/; s/steps: 3/steps: 6/' mlp.yaml >wide.yaml
sed 's/8, 6, 3/8, 4, 3/; s/global_batch: 12/global_batch: 20/' mlp.yaml >few.yaml # rows for 4 shards
lm() {
    cat <<YAML
model: { name: $1, n_layer: 1, n_head: 2, d_model: 8, seq_len: 16 }
data: { path: $tmp/tokens }
train: { steps: 3, global_batch: 12, seq_len: 8, eval_batches: 1 }
optim: { name: adamw, lr: 0.01 }
log: { tensorboard: false, every: 1 }
YAML
}
lm gpt2 >gpt2.yaml
lm llama >llama.yaml
lm moe >moe.yaml

declare -A ran
runs=0
# The folder of the run of $1.yaml with the other words: out, err, code; the same words run once. RUN is the run's own folder.
go() {
    local key="$* ${LOCKSTEP_DEBUG:-}" recipe=$1 dir
    shift
    if [ -z "${ran[$key]:-}" ]; then
        dir=go-$((++runs))
        mkdir $dir
        local words=("${@//RUN/$dir/run}")
        case " $* " in *' --run.dir '* | *' --run.name '*) ;; *) words+=(--run.dir "$dir/run") ;; esac
        timeout -k 5 60 "$lockstep" train "$recipe.yaml" "${words[@]}" >$dir/out 2>$dir/err
        echo $? >$dir/code
        ran[$key]=$dir
    fi
    dir=${ran[$key]}
    at=$dir
}
last() { [ "$(cat "$1/code")" = 0 ] && tail -1 "$1/out"; }

# key, recipe, words of one run, words of another: what the probe reads differs. `last` is loss and digest.
differ() { # probe...
    local probe=$1 key=$2 recipe=$3 one=$4 other=$5 a b
    row["train $key"]=1
    # shellcheck disable=SC2086
    go "$recipe" $one && a=$($probe "$at") || { claim "train $key: $one runs" failed_run "$at"; return; }
    # shellcheck disable=SC2086
    go "$recipe" $other && b=$($probe "$at") || { claim "train $key: $other runs" failed_run "$at"; return; }
    claim "train $key: $recipe with '$one' and '$other' are not the same" test "$a" != "$b" -a -n "$a" -a -n "$b"
}
failed_run() { cat "$1/err" && false; }
output() { [ "$(cat "$1/code")" = 0 ] && cat "$1/out"; }
refuse() { # key, recipe, words, exit status, text
    row["train $1"]=1
    # shellcheck disable=SC2086
    go "$2" $3
    claim "train $1: $3 is refused" test "$(cat "$at/code")" = "$4"
    claim "train $1: and named" grep -qF -- "$5" "$at/err"
}
shows() { # key, recipe, words, command that succeeds in the folder of the run, and fails in that without them
    local key=$1 recipe=$2 words=$3
    shift 3
    row["train $key"]=1
    # shellcheck disable=SC2086
    go "$recipe" $words
    claim "train $key: $words: $*" in_folder "$at" "$@"
    go "$recipe"
    claim "train $key: not so without" in_folder_not "$at" "$@"
}
in_folder() { (cd "$1" && shift && "$@") || { cat "$1/err"; return 1; }; }
in_folder_not() { ! (cd "$1" && shift && "$@") 2>/dev/null; }
lines() { test "$(grep -c "$1" out)" = "$2"; }
checkpoints() { test "$(find run/checkpoints -name 'step-*' | wc -l)" = "$1"; }

# --- model, data --------------------------------------------------------------------------------------
differ last model.name gpt2 '' '--model.name llama'
differ output model.preset gpt2 '--dry-run' '--dry-run --model.preset gpt2'
differ output model.dims mlp '--dry-run' '--dry-run --model.dims 8,2000,3'
differ last model.activation mlp '' '--model.activation gelu'
differ last model.init mlp '' '--model.init torch'
takes() { awk -v ms="$1" '{ match($0, /end_to_end\(s\)": [0-9.e-]+/); if (substr($0, RSTART + 15, RLENGTH - 15) * 1000 < ms) bad = 1 } END { exit bad }' run/metrics.jsonl; }
shows model.forward_ms timed '--model.forward_ms 100' takes 190
shows model.backward_ms timed '--model.backward_ms 100' takes 190
go mlp
differ last model.load mlp '--train.epochs 0 --train.steps 0' "--train.epochs 0 --train.steps 0 --model.load $at/run"
differ last model.n_layer gpt2 '' '--model.n_layer 2'
differ last model.n_head gpt2 '' '--model.n_head 4'
differ last model.n_kv_head llama '' '--model.n_kv_head 1'
differ last model.d_model gpt2 '' '--model.d_model 16'
differ last model.d_ff gpt2 '' '--model.d_ff 16'
differ last model.vocab_size gpt2 '' '--model.vocab_size 200'
differ last model.seq_len gpt2 '' '--model.seq_len 32'
differ last model.tied gpt2 '' '--model.tied false'
differ last model.rope_theta llama '' '--model.rope_theta 100'
differ last model.norm_eps llama '' '--model.norm_eps 0.1'
differ last model.n_experts moe '' '--model.n_experts 4'
differ last model.top_k moe '' '--model.top_k 3'
differ last model.d_expert moe '' '--model.d_expert 12'
differ last model.shared_expert moe '' '--model.shared_expert 8'
differ last model.first_dense moe '--model.n_layer 2' '--model.n_layer 2 --model.first_dense 1'
differ last model.norm_topk moe '' '--model.norm_topk false'
differ last moe.capacity_factor moe '' '--moe.capacity_factor 0.5'
differ last moe.drop moe '--moe.capacity_factor 0.5' '--moe.capacity_factor 0.5 --moe.drop probability'
refuse moe.drop moe '--moe.drop probability' 78 'moe.drop belongs to moe.capacity_factor above 0'
refuse model.d_ff moe '--model.d_expert 12 --model.d_ff 16' 78 'model.d_ff belongs to layers without experts'
differ last model.d_ff moe '--model.d_expert 12 --model.first_dense 0' '--model.d_expert 0 --model.d_ff 24'
refuse model.first_dense moe '--model.first_dense 1' 78 'model.first_dense is 1; expected 0 to 0, so that at least one layer has experts'
differ last moe.aux_loss moe '' '--moe.aux_loss 0.5'
differ last moe.z_loss moe '' '--moe.z_loss 0.5'
differ last moe.bias_rate moe '' '--moe.bias_rate 0.01'
differ last moe.force_expert moe '' '--moe.force_expert 0'
for kind in embd attn resid; do differ last model.${kind}_dropout gpt2 '' "--model.${kind}_dropout 0.5"; done
refuse data.name mlp '--data.name sotu' 78 'an mlp learns from fashion-mnist, idx or synthetic'
refuse data.path gpt2 '--data.path absent' 74 'absent'
both() { cat "$1/code" "$1/out" "$1/err"; }
differ both data.format gpt2 '' '--data.format nanogpt'
differ last data.tokenizer gpt2 '--data.path empty --data.name text.txt --data.tokenizer byte' '--data.path other --data.name text.txt --data.tokenizer char'
differ last data.ignore_token gpt2 '' '--data.ignore_token 3'
differ last data.shuffle mlp '' '--data.shuffle false'
differ last data.drop_last mlp '--train.steps 0 --train.global_batch 48' '--train.steps 0 --train.global_batch 48 --data.drop_last true'
LOCKSTEP_DEBUG=info shows data.workers mlp '--data.workers 3' grep -q 'loader: 3 workers' err
go mlp && none=$(last "$at") && go mlp --data.workers 3
claim 'train data.workers: any number gives the same model' test "$(last "$at")" = "$none" -a -n "$none"
refuse data.workers mlp '--data.workers 65' 64 '--data.workers: expected an integer in 0..64'
refuse data.workers gpt2 '--data.workers 1' 78 'data.workers belongs to model.name mlp'

# --- training, optimizer --------------------------------------------------------------------------------
differ last train.steps mlp '' '--train.steps 4'
differ last train.epochs mlp '--train.steps 0 --train.global_batch 500' '--train.steps 0 --train.global_batch 500 --train.epochs 2'
differ last train.global_batch mlp '' '--train.global_batch 24'
shows train.micro_batch mlp '--train.micro_batch 3' grep -q '^batch: .* 4 micro-batches' out
differ last train.seq_len gpt2 '' '--train.seq_len 16'
differ last train.seed mlp '' '--train.seed 1'
differ last train.seed gpt2 '--data.shuffle false' '--data.shuffle false --train.seed 1'
differ last train.dtype gpt2 '' '--train.dtype bf16'
differ output train.recompute gpt2 '--dry-run' '--dry-run --train.recompute full'
packs='--dry-run --model.d_model 256 --model.seq_len 640 --train.seq_len 640 --train.micro_batch 1 --train.pack_weights'
differ output train.pack_weights gpt2 "$packs never" "$packs always"
shows train.pack_weights gpt2 '--train.pack_weights always' grep -q '^packed weights: none' out
differ output train.eval_every gpt2 '' '--train.eval_every 2'
shows train.eval_every gpt2 '--train.eval_every 2' lines '^validate step' 2
vals() { grep '^validate step' "$1/out"; }
differ vals train.eval_batches gpt2 '' '--train.eval_batches 3'
refuse data.drop_last gpt2 '--data.drop_last true' 78 'data.drop_last belongs to model.name mlp'
mkdir no-val && cp tokens/train.bin tokens/tokenizer.json no-val # gpt2.yaml gives eval_batches
refuse train.eval_batches gpt2 "--data.path $tmp/no-val" 78 'train.eval_batches: there is nothing to evaluate on: no val.bin'
refuse train.eval_every gpt2 "--data.path $tmp/no-val --train.eval_batches 0 --train.eval_every 2" 78 'train.eval_every: there is nothing to evaluate on: no val.bin'
go gpt2 --data.path "$tmp/no-val" --train.eval_batches 0
claim 'tokens without val.bin: a run without evaluations' grep -q '^final step=3 ' "$at/out"
shows train.sample_every gpt2 '--train.sample_every 3 --train.sample_prompt A' grep -q '^sample at step 3:' out
differ output train.sample_tokens gpt2 '--train.sample_every 3 --train.sample_prompt A' '--train.sample_every 3 --train.sample_prompt A --train.sample_tokens 2'
differ output train.sample_prompt gpt2 '--train.sample_every 3 --train.sample_prompt A' '--train.sample_every 3 --train.sample_prompt rank'
differ last train.numerics gpt2 '--train.global_batch 8' '--train.global_batch 8 --train.numerics invariant'
refuse train.numerics mlp '--train.numerics exact' 64 '--train.numerics: expected one of fast|invariant'
differ last train.grain gpt2 '--train.global_batch 8 --train.numerics invariant' '--train.global_batch 8 --train.numerics invariant --train.grain 2'
refuse train.grain mlp '--train.grain 2' 78 'train.grain belongs to train.numerics invariant, and train.numerics is fast'
differ last optim.name mlp '' '--optim.name sgd'
differ last optim.lr mlp '' '--optim.lr 0.02'
differ last optim.momentum sgd '' '--optim.momentum 0.9'
differ last optim.betas mlp '' '--optim.betas 0.8,0.999'
differ last optim.betas mlp '' '--optim.betas 0.9,0.9'
differ last optim.eps mlp '' '--optim.eps 1e-3'
differ last optim.weight_decay mlp '' '--optim.weight_decay 0.1'
differ last optim.weight_decay sgd '' '--optim.weight_decay 0.1'
differ last optim.weight_decay gpt2 '' '--optim.weight_decay 0.5'
differ last optim.decay gpt2 '' '--optim.decay matrices'
differ last optim.clip mlp '' '--optim.clip 0.01'
differ last optim.schedule mlp '' '--optim.schedule linear'
differ last optim.warmup mlp '' '--optim.warmup 2'
shows optim.scale_lr mlp '--nproc-per-node 2 --optim.scale_lr linear' grep -q '^learning rate: .* x 2 ranks' out
differ last optim.min_lr mlp '--optim.schedule cosine' '--optim.schedule cosine --optim.min_lr 1e-3'
differ last optim.min_lr_ratio mlp '--optim.schedule cosine' '--optim.schedule cosine --optim.min_lr_ratio 0.5'
scales() { grep -o '"loss_scale": [0-9.e+]*, "skipped_steps": [0-9]*' "$1/run/metrics.jsonl"; }
shows optim.loss_scale mlp '--optim.loss_scale 128' grep -q '"loss_scale": 128, "skipped_steps": 0' run/metrics.jsonl
differ scales optim.loss_scale mlp '--optim.loss_scale 128' '--optim.loss_scale dynamic'
refuse optim.loss_scale mlp '--optim.loss_scale fast' 78 "optim.loss_scale is 'fast': expected none, dynamic or a number above 0"
refuse optim.loss_scale mlp '-n 2 --optim.loss_scale dynamic --ddp.hook powersgd' 78 'optim.loss_scale dynamic with ddp.hook powersgd'
scaled='--optim.loss_scale dynamic --inject overflow@0:2'
differ scales optim.scale_init mlp "$scaled" "$scaled --optim.scale_init 1024"
differ scales optim.scale_backoff mlp "$scaled" "$scaled --optim.scale_backoff 0.25"
refuse optim.scale_backoff mlp '--optim.loss_scale dynamic --optim.scale_backoff 0' 78 'optim.scale_backoff is 0'
differ scales optim.scale_interval mlp '--optim.loss_scale dynamic' '--optim.loss_scale dynamic --optim.scale_interval 1'
differ scales optim.scale_growth mlp '--optim.loss_scale dynamic --optim.scale_interval 1' \
    '--optim.loss_scale dynamic --optim.scale_interval 1 --optim.scale_growth 4'
differ last optim.decay_steps mlp '--optim.schedule wsd' '--optim.schedule wsd --optim.decay_steps 2'

# --- parallel, not implemented ----------------------------------------------------------------------------
shows parallel.dp mlp '--parallel.dp 2' grep -q ', 2 ranks over shm' out
shows parallel.pp gpt2 '--parallel.pp 2' grep -q '2 ranks over shm, pp 2 (1f1b) x dp 1, DDP' out
refuse parallel.ep mlp '--parallel.ep 2' 78 'plan: ep is 2, but mlp has no experts'
for axis in tp cp; do refuse parallel.$axis mlp "--parallel.$axis 2" 78 "parallel.$axis is 2, but mlp has no layers that ranks divide"; done
shows parallel.tp gpt2 '--parallel.tp 2' grep -q '2 ranks over shm, tp 2 x dp 1, DDP' out
shows parallel.sp gpt2 '--parallel.tp 2 --parallel.sp true' grep -q 'tp 2 (sequence parallel) x dp 1, DDP' out
shows parallel.tp_pieces gpt2 '--parallel.tp 2 --parallel.tp_pieces 4' grep -q 'tp 2 (4 pieces) x dp 1, DDP' out
sums() { grep -o '"all_reduce": {"calls": [0-9]*' "$1/run/comm.json"; }
differ sums parallel.tp_pieces gpt2 '--parallel.tp 2' '--parallel.tp 2 --parallel.tp_pieces 4'
shows parallel.cp gpt2 '--parallel.cp 2' grep -q '2 ranks over shm, cp 2 (ring) x dp 1, DDP' out
shows parallel.context llama '--parallel.cp 2 --parallel.context ulysses' grep -q 'cp 2 (ulysses) x dp 1, DDP' out
shows parallel.cp_ulysses gpt2 '--parallel.cp 4 --parallel.context ulysses-ring --parallel.cp_ulysses 2' grep -q 'cp 4 (ulysses 2 x ring 2) x dp 1, DDP' out
refuse parallel.cp_ulysses gpt2 '--parallel.cp 4 --parallel.context ulysses-ring --parallel.cp_ulysses 3' 78 'plan: 3 neighbours of cp 4 exchange heads in ulysses-ring: expected 2'
refuse parallel.cp_ulysses gpt2 '--parallel.cp 4 --parallel.cp_ulysses 4' 78 'parallel.cp_ulysses belongs to parallel.context ulysses-ring, and parallel.context is ring'
shows parallel.cp_ulysses gpt2 '--parallel.cp 4 --parallel.context ulysses-ring' grep -q 'cp 4 (ulysses 2 x ring 2) x dp 1, DDP' out
refuse parallel.cp_ulysses gpt2 '--parallel.cp 4 --parallel.cp_ulysses 2' 78 'parallel.context is ring: leave it out (it is set by flag'
shows parallel.cp_split gpt2 '--parallel.cp 4 --parallel.cp_split contiguous' \
    grep -q '^attention: work of the ranks of cp: 0.33 0.78 1.22 1.67 of the mean; the causal mask skips 6 of 16 blocks of queries and keys$' out
shows parallel.context gpt2 '--parallel.cp 4 --parallel.context gather --json' \
    grep -q '"attention": {"work": \[1, 1, 1, 1\], "largest": 1, "blocks": 64, "skipped": 28}' out
differ last parallel.cp_split gpt2 '--parallel.cp 2' '--parallel.cp 2 --parallel.cp_split contiguous'
shows parallel.ep moe '--parallel.ep 2' grep -q '2 ranks over shm, ep 2 x dp 1, DDP' out
refuse parallel.ep gpt2 '--parallel.ep 2' 78 'plan: ep is 2, but gpt2 has no experts: expected ep 1, or model moe'
refuse parallel.ep moe '--parallel.ep 3' 78 'plan: ep 3 does not divide model.n_experts, which is 8: nearest valid: 2 or 4'
refuse parallel.ep moe '--parallel.ep 2 --zero.stage 1 --zero.hsdp 4 -n 4' 78 'plan: hsdp 4 does not divide dp, which is 2: with ep 2 each set of shards has all experts; nearest valid: 2'
refuse parallel.sp gpt2 '--parallel.sp true' 78 'parallel.sp belongs to parallel.tp above 1, and parallel.tp is 1'
refuse parallel.tp_pieces gpt2 '--parallel.tp_pieces 4' 78 'parallel.tp_pieces belongs to parallel.tp above 1, and parallel.tp is 1'
refuse parallel.tp_pieces gpt2 '--parallel.tp 2 --parallel.sp true --parallel.tp_pieces 4' 78 'parallel.tp_pieces belongs to all_reduces inside a layer, with parallel.sp false, and parallel.sp is true'
refuse parallel.tp_pieces gpt2 '--parallel.tp 2 --parallel.tp_pieces 17' 64 'parallel.tp_pieces'
refuse parallel.context gpt2 '--parallel.context gather' 78 'parallel.context belongs to parallel.cp above 1, and parallel.cp is 1'
refuse parallel.cp_split gpt2 '--parallel.cp_split contiguous' 78 'parallel.cp_split belongs to parallel.cp above 1, and parallel.cp is 1'
refuse parallel.cp gpt2 '--parallel.cp 2 --train.seq_len 6' 78 'cannot be divided by parallel.cp 2 (two pieces for each rank): expected a multiple of 4; nearest that fit: 4 or 8'
refuse parallel.cp gpt2 '--parallel.cp 2 --model.seq_len 10 --train.seq_len 10' 78 'expected a multiple of 4; nearest that fit: 8'
refuse parallel.sp gpt2 '--parallel.tp 2 --parallel.sp true --train.seq_len 7' 78 'cannot be divided by parallel.tp 2 (parallel.sp): expected a multiple of 2; nearest that fit: 6 or 8'
refuse parallel.sp gpt2 '--parallel.cp 2 --parallel.tp 2 --parallel.sp true --train.seq_len 10' 78 'by parallel.cp 2 (two pieces for each rank) and parallel.tp 2 (parallel.sp): expected a multiple of 4; nearest that fit: 8 or 12'
refuse parallel.context gpt2 '--parallel.cp 4 --parallel.context ulysses' 78 'cp 4 does not divide model.n_head, which is 2: nearest valid: 2; ring and gather take any number of heads'
refuse parallel.tp gpt2 '--parallel.tp 4' 78 'tp 4 does not divide model.n_head, which is 2: nearest valid: 2'
refuse parallel.cp gpt2 '--parallel.cp 3 -n 4' 78 'mesh: cp 3 = 3, but the world has 4 ranks: with cp 2 or 4, dp 2 or 1 fits'
differ last parallel.order gpt2 '-n 8 --parallel.tp 2 --parallel.cp 2 --train.global_batch 8' '-n 8 --parallel.tp 2 --parallel.cp 2 --train.global_batch 8 --parallel.order cp-tp-dp'
refuse parallel.order moe '-n 8 --train.global_batch 8 --parallel.ep 2 --zero.stage 1 --zero.hsdp 2 --parallel.order ep-dp' 78 'each set of shards has all experts, so dp comes before ep'
refuse parallel.order mlp '--parallel.order tp-up' 78 "parallel.order tp-up: there is no axis 'up': expected pp, dp, ep, cp and tp"
refuse parallel.placement mlp '--parallel.placement auto --parallel.order pp-dp' 78 'parallel.placement auto chooses the order of the axes, and parallel.order pp-dp is given (by flag'
refuse parallel.placement mlp '--parallel.placement spread' 64 '--parallel.placement: expected one of'
buckets() { grep -E '^(buckets| +bucket)' "$1/out"; }
differ buckets ddp.find_unused mlp '-n 2 --dump-buckets' '-n 2 --dump-buckets --ddp.find_unused true'
shows ddp.static_graph mlp '-n 2 --ddp.static_graph true' grep -q 'DDP (static_graph)' out
for key in find_unused static_graph; do
    refuse ddp.$key mlp "-n 2 --zero.stage 1 --ddp.$key true" 78 "ddp.$key true with zero.stage 1"
done
refuse ddp.hook mlp '--ddp.hook f8' 64 '--ddp.hook: expected one of'
for hook in f16 bf16; do differ last ddp.hook wide '-n 2' "-n 2 --ddp.hook $hook"; done
differ last ddp.hook wide '-n 3' '-n 3 --ddp.hook allreduce'
refuse ddp.guard mlp '-n 2 --inject diverge@1:2' 81 'replicas have other parameters'
go mlp -n 2 --inject diverge@1:2 --ddp.guard false
claim 'train ddp.guard false: nobody looks' test "$(cat "$at/code")" = 0
refuse inject mlp '-n 2 --zero.stage 1 --inject diverge@1:2' 78 '--inject diverge with zero.stage 1: each shard is on one rank'
refuse inject few '-n 10 --zero.stage 1 --zero.hsdp 2 --inject diverge@4:2' 78 'rank 4 owns no row of any parameter'
refuse ddp.bucket_view mlp '-n 2 --ddp.hook f16 --ddp.bucket_view true' 78 'ddp.bucket_view belongs to ddp.hook none'
refuse ddp.guard mlp '-n 2 --zero.stage 1 --ddp.guard false' 78 'ddp.guard belongs to zero.stage 0, or zero.stage 1 to 3 with zero.hsdp above 1'
refuse ddp.guard mlp '-n 4 --zero.stage 1 --zero.hsdp 2 --inject diverge@1:2' 81 'replicas have other parameters'
go mlp -n 4 --zero.stage 1 --zero.hsdp 2 --inject diverge@1:2 --ddp.guard false
claim 'train ddp.guard false with zero.hsdp: nobody looks' test "$(cat "$at/code")" = 0
psgd='-n 2 --ddp.hook powersgd --ddp.powersgd_start 2'
differ last ddp.hook wide '-n 2' "$psgd"
differ last ddp.powersgd_rank wide "$psgd" "$psgd --ddp.powersgd_rank 2"
differ last ddp.powersgd_start wide "$psgd" "$psgd --ddp.powersgd_start 3"
differ last ddp.powersgd_feedback wide "$psgd" "$psgd --ddp.powersgd_feedback false"
differ last ddp.powersgd_warm_start wide "$psgd" "$psgd --ddp.powersgd_warm_start false"
refuse ddp.powersgd_rank mlp '--ddp.powersgd_rank 2' 78 'ddp.powersgd_rank belongs to ddp.hook powersgd'
refuse ddp.hook mlp '-n 2 --ddp.hook f16 --zero.stage 1' 78 'ddp.hook f16 with zero.stage 1'
refuse zero.reduce mlp '--zero.reduce last' 78 'zero.reduce belongs to zero.stage 2 and 3, and zero.stage is 0'
refuse zero.copy mlp '--zero.copy rank' 78 'zero.copy belongs to zero.stage 3, and zero.stage is 0'
refuse zero.units mlp '--zero.units model' 78 'zero.units belongs to versions to come'
refuse zero.prefetch mlp '--zero.prefetch 2' 78 'zero.prefetch belongs to zero.stage 3 with zero.copy rank'
refuse zero.reshard mlp '--zero.reshard never' 78 'zero.reshard belongs to zero.stage 3 with zero.copy rank'
of_two='--dry-run --parallel.dp 2'
differ output zero.stage mlp "$of_two" "$of_two --zero.stage 2"
differ output zero.reduce mlp "$of_two --zero.stage 2" "$of_two --zero.stage 2 --zero.reduce last"
differ output zero.copy mlp "$of_two --zero.stage 3" "$of_two --zero.stage 3 --zero.copy rank"
differ output zero.prefetch mlp "$of_two --zero.stage 3 --zero.copy rank" "$of_two --zero.stage 3 --zero.copy rank --zero.prefetch 0"
differ output zero.reshard mlp "$of_two --zero.stage 3 --zero.copy rank --zero.prefetch 0" \
    "$of_two --zero.stage 3 --zero.copy rank --zero.prefetch 0 --zero.reshard never"
refuse zero.hsdp mlp '--zero.hsdp 2' 78 'zero.hsdp belongs to zero.stage 1 to 3'
of_four='--dry-run --parallel.dp 4 --zero.stage 1'
differ output zero.hsdp mlp "$of_four" "$of_four --zero.hsdp 2"
refuse zero.hsdp mlp "$of_four --zero.hsdp 3" 78 'checking zero.hsdp: plan: hsdp 3 does not divide the number of ranks, which is 4: nearest valid: 2 or 4'
refuse zero.hsdp mlp "$of_four --zero.hsdp 5" 78 'checking zero.hsdp: plan: hsdp is 5: expected 1 to 4, the number of ranks'
refuse pipeline.schedule mlp '--pipeline.schedule gpipe' 78 'pipeline.schedule belongs to parallel.pp above 1'
refuse pipeline.chunks mlp '--pipeline.chunks 2' 78 'pipeline.chunks belongs to parallel.pp above 1'
refuse pipeline.split mlp '--pipeline.split 1,1' 78 'pipeline.split belongs to parallel.pp above 1'
stages='--parallel.pp 2 --train.micro_batch 3'
shows pipeline.schedule gpt2 "$stages --pipeline.schedule gpipe" grep -q '2 ranks over shm, pp 2 (gpipe) x dp 1, DDP' out
refuse pipeline.schedule gpt2 "$stages --pipeline.schedule zb-h1 --zero.stage 2" 78 'schedule zb-h1 has backwards in two halves'
refuse pipeline.chunks gpt2 "$stages --pipeline.chunks 2" 78 'pipeline schedule 1f1b with 2 chunks of the model per rank: expected 1'
refuse pipeline.split gpt2 "$stages --pipeline.split 1,1" 78 'a split gives 2 layers to 2 stages: expected 1, the layers of the model'
refuse pipeline.split gpt2 "$stages --pipeline.split 0.25,0.75" 78 'a split gives stage 0 0.25 layers: expected a multiple of 0.5'
refuse parallel.pp gpt2 '--parallel.pp 5' 78 'plan: 5 stages of a model that has 4 units (embedding, halves of layers and head)'
differ output pipeline.chunks gpt2 "--dry-run $stages --model.n_layer 4 --pipeline.schedule interleaved" \
    "--dry-run $stages --model.n_layer 4 --pipeline.schedule interleaved --pipeline.chunks 3"
differ output pipeline.split gpt2 "--dry-run $stages --model.n_layer 4" "--dry-run $stages --model.n_layer 4 --pipeline.split 1,3"
differ output pipeline.split gpt2 "--dry-run $stages --model.n_layer 4 --pipeline.split 1,3" "--dry-run $stages --model.n_layer 4 --pipeline.split 1.5,2.5"

# --- ddp, zero ----------------------------------------------------------------------------------------------
wide='-n 2 --model.dims 8,64,64,3 --comm.transport tcp'
differ output ddp.bucket_cap mlp "$wide --dump-buckets --ddp.first_bucket 1KiB" "$wide --dump-buckets --ddp.first_bucket 1KiB --ddp.bucket_cap 1KiB"
buckets() { grep -A3 '^buckets (first' "$1/out"; }
differ buckets ddp.first_bucket mlp "$wide --dump-buckets" "$wide --dump-buckets --ddp.first_bucket 1KiB"
differ last ddp.bucket_view mlp '-n 3' '-n 3 --ddp.bucket_view true'
overlaps() { # yes: a bucket leaves before the last gradient is there
    sed -nE 's/.*"pid":0,.*"cat":"(comm|backward)","ts":([0-9.]+),.*/\1 \2/p' "$1/run/trace/trace.json" |
        awk '$1 == "comm" && (!c || $2 < c) { c = $2 } $1 == "backward" && $2 > b { b = $2 } END { print (c && b) ? (c < b ? "yes" : "no") : "" }'
}
each="$wide --ddp.first_bucket 1 --ddp.bucket_cap 1 --trace.steps 3"
differ overlaps ddp.overlap mlp "$each" "$each --ddp.overlap false"
shows zero.stage mlp '-n 2 --zero.stage 1' grep -q 'DDP with ZeRO stage 1' out
shows parallel.dp_strategy mlp '-n 2 --parallel.dp_strategy fsdp' grep -q 'DDP with ZeRO stage 1' out
refuse parallel.dp_strategy mlp '--parallel.dp_strategy ddp --zero.stage 1' 78 'parallel.dp_strategy is ddp, but zero.stage is 1: set zero.stage to 0'
refuse parallel.dp_strategy mlp '--parallel.dp_strategy horovod' 64 '--parallel.dp_strategy: expected one of auto|ddp|fsdp'

# --- what is kept and printed ----------------------------------------------------------------------------------
shows checkpoint.dir mlp '--checkpoint.dir RUN.kept' ls run.kept/step-00000003/model.safetensors
row['train checkpoint.every']=1
go mlp --checkpoint.every 1
claim 'train checkpoint.every: one more is kept' in_folder "$at" checkpoints 2
go mlp
claim 'train checkpoint.every: not without' in_folder "$at" checkpoints 1
row['train checkpoint.resume']=1
go mlp --train.steps 2 --run.dir resumed
go mlp --train.steps 3 --run.dir resumed --checkpoint.resume auto
claim 'train checkpoint.resume: one more step is taken' grep -q '^resuming step 2 of resumed/checkpoints/step-00000002' "$at/out"
go mlp --train.steps 4 --checkpoint.resume resumed
claim 'train checkpoint.resume: of another run' grep -q '^resuming step 3 of resumed/checkpoints/step-00000003' "$at/out"
refuse checkpoint.resume mlp '--checkpoint.resume nowhere' 65 'checkpoint.resume nowhere: there is no checkpoint'
row['train checkpoint.consolidate']=1
for when in always last never; do
    go mlp --checkpoint.every 2 --train.steps 3 --checkpoint.consolidate $when
    found=$(cd "$at/run/checkpoints" && echo */model.safetensors)
    case $when in
    always) want='step-00000002/model.safetensors step-00000003/model.safetensors' ;;
    last) want='step-00000003/model.safetensors' ;;
    never) want='*/model.safetensors' ;;
    esac
    claim "train checkpoint.consolidate: $when" test "$found" = "$want"
done
shows checkpoint.keep mlp '--checkpoint.every 1 --checkpoint.keep 3' checkpoints 3
shows checkpoint.best mlp '--checkpoint.best loss' test -e run/checkpoints/best
refuse checkpoint.best mlp '--data.name synthetic --checkpoint.best fastest' 64 "expected one of none|loss|accuracy, found 'fastest'"
refuse checkpoint.async mlp '--checkpoint.async true --checkpoint.consolidate always' 78 'set checkpoint.consolidate to last or never'
shows checkpoint.snapshot mlp '--checkpoint.snapshot 1' grep -q '^snapshots: 2 of ' out
shows checkpoint.async mlp '--checkpoint.async true' grep -q '"ckpt": {"planned": [1-9]' run/memory.json
row['train checkpoint.timeout']=1 # its effect takes a slow disk, which that suite has
claim 'train checkpoint.timeout: has its row there' grep -q "claim 'a save longer than checkpoint.timeout: 83'" "$source_dir/tests/test_train_save.sh"
shows log.every mlp '--log.every 2 --train.steps 5' lines '^step: ' 4
shows log.format mlp '--log.format megatron' grep -q '^ iteration ' out
shows log.samples mlp '--log.samples true' ls run/samples/rank-00000.jsonl
shows log.tensorboard mlp '--log.tensorboard true' ls run/tb
row['train log.straggler']=1 # its effect takes seconds, which that suite has
claim 'train log.straggler: has its row there' grep -q "claim 'log.straggler 0: no warning'" "$source_dir/tests/test_train_straggler.sh"
shows trace.steps mlp '--trace.steps 2' ls run/trace/trace.json
shows run.dir mlp '--run.dir RUN.mine' ls run.mine/metrics.jsonl
shows run.name mlp '--run.name named' grep -q '^run folder: runs/named$' out

# --- communication -----------------------------------------------------------------------------------------------
refuse comm.backend mlp '--comm.backend nccl' 78 'comm.backend nccl is not implemented'
refuse comm.order mlp '--comm.order ranks' 78 'comm.order belongs to comm.backend mpi'
shows comm.transport mlp '-n 2 --comm.transport tcp' grep -q '2 ranks over tcp' out
bytes() { grep -o '"comm/bytes": [0-9]*' "$1/run/metrics.jsonl" | tail -1; }
differ bytes comm.algo mlp '-n 3 --comm.transport tcp --comm.algo ring' '-n 3 --comm.transport tcp --comm.algo master'
shows comm.timeout mlp '-n 2 --inject hang@1:2 --comm.timeout 700ms' grep -q 'waited [0-9]\.[0-9] s' err # of 30 s by default
differ bytes comm.wire mlp '-n 2 --comm.transport tcp --model.dims 8,2000,3' '-n 2 --comm.transport tcp --model.dims 8,2000,3 --comm.wire bf16'
export LOCKSTEP_DEBUG=info # what the connections and the engine became, not what was asked
shows comm.progress mlp '-n 2 --comm.progress thread' grep -q 'a thread moves collectives' err
differ_log() { # key, words, others, pattern that one has and the other has not
    row["train $1"]=1
    # shellcheck disable=SC2086
    go mlp -n 2 --comm.transport tcp $2
    claim "train $1: $2: $4" grep -qE "$4" "$at/err"
    # shellcheck disable=SC2086
    go mlp -n 2 --comm.transport tcp $3
    claim "train $1: $3: not so" in_folder_not "$at" grep -qE "$4" err
}
differ_log comm.security '--comm.security encrypt' '' 'connection to rank [01]: encrypted'
differ_log comm.check '' '--comm.check none' 'frames with checksums'
unset LOCKSTEP_DEBUG

# --- flags -----------------------------------------------------------------------------------------------------------
shows nproc-per-node mlp '--nproc-per-node 3' grep -q ', 3 ranks over' out
cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
if [ "$cores" -ge 2 ] && [ "$cores" -le 64 ]; then
    go mlp -n auto --train.global_batch $((cores * 2))
    claim 'train -n auto: one rank per usable core' grep -q ", $cores ranks over" $at/out
fi
claim 'train -n auto: in a job the ranks are there already' "$lockstep" run -n 3 "$lockstep" train mlp.yaml -n auto --run.dir auto
claim 'train -n: another word is refused' fails_with 64 "--nproc-per-node is 'all': expected 0 to 256, or auto" "$lockstep" train mlp.yaml -n all
go mlp
shows eval-only mlp "--eval-only --model.load $at/run" grep -q '^test_loss=' out
shows print-config mlp '--print-config' grep -q '^  lr: 0.01 *# mlp.yaml:4$' out
shows explain mlp '--explain mfu' grep -q '^peak = 1 rank' out
shows memory.limit mlp '--memory.limit 100KiB' grep -q 'error\[no-memory\].*0.1 MiB are available' err
row['train memory.check']=1
go mlp --memory.limit 100KiB --memory.check false
claim 'train memory.check: false starts all the same' test "$(cat "$at/code")" = 0
shows dry-run mlp '--dry-run' grep -q '^parameters ' out
shows ranks-as mlp '--ranks-as threads --inject kill@0:1' grep -q 'would take all ranks with it' err # more: test_train_threads.sh
shows dump-buckets mlp '--dump-buckets' grep -q '^buckets (' out
shows json mlp '--json' grep -q '^{"lockstep_train": 1, ' out # more: test_train_json.sh
shows predict mlp '--predict' grep -q '^prediction: operations timed in ' out # more: test_plan_check.sh
shows inject mlp '--inject nan@0:2' grep -q 'the loss of rank 0 in step 2 is not finite' err
shows compare mlp "--compare $at/run" grep -q '^compared with .*: 3 steps and ' out
refuse inject mlp '--inject nan@0:2+' 64 'which of slow and slow-input may end in +'
refuse inject mlp '--inject nan@0:9' 78 'inject nan@0:9: the run has 3 steps'
shows events mlp '--events RUN.events' grep -q '"event":"rank_exit"' run.events
claim 'train --log-dir: not under another launcher' fails_with 64 '--log-dir is the launcher' "$lockstep" run "$lockstep" train mlp.yaml --log-dir l
claim 'train --log-dir: nor with another folder than its own' fails_with 64 '--log-dir is the launcher' "$lockstep" run --log-dir k "$lockstep" train mlp.yaml --log-dir l
claim 'train --log-dir: nor under mpirun' fails_with 64 '--log-dir is the launcher' env OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 \
    OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "$lockstep" train mlp.yaml --log-dir l
claim 'train --log-dir: no such folder is made' test ! -e l
claim 'train --events: not under another launcher' fails_with 64 'give it to `lockstep run`' "$lockstep" run "$lockstep" train mlp.yaml --events e
claim 'train --nproc-per-node: nor another number of ranks' fails_with 64 'has started 1 ranks' "$lockstep" run "$lockstep" train mlp.yaml -n 2
shows log-dir mlp '--log-dir RUN.logs' ls run.logs
shows max-restarts mlp '--max-restarts 1 --inject kill@0:2' grep -q 'restart   : as generation 2' err
shows help mlp '--help' grep -q '^usage: lockstep train' out

# --- every key has a row -----------------------------------------------------------------------------------------------
claim 'train has as many keys as --help shows' test "$(flags_of train | wc -l)" -gt 90
claim 'every key of train has a row' complete train
finish
