#!/bin/bash
# test_hf_moe.sh -- models with experts in Hugging Face's files, and what transformers finds when it trains them
# (tests/golden/make-moe.py): losses and gradient norms of 20 AdamW steps, on one rank and where ranks divide the experts.
#
#   tests/test_hf_moe.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
golden=$source_dir/tests/golden/moe
lockstep=$build/lockstep

# Trains from $1 as the golden run did; the other words are flags. The folder of the run is $2.
train() {
    local model=$1 run=$2
    shift 2
    "$lockstep" train --model.load "$model" --data.path "$golden/tokens.bin" --data.format nanogpt --train.seq_len 16 \
        --train.global_batch 8 --data.shuffle false --train.steps 20 --optim.name adamw --optim.lr 1e-2 --optim.eps 1e-5 \
        --optim.weight_decay 0.01 --optim.clip 1 --log.tensorboard false --run.dir "$run" "$@" >"$run.out" 2>"$run.err" ||
        { cat "$run.err"; return 1; }
}
# Losses to 2e-6 and norms to 1e-4 of the golden ones: f32 rounds to 6e-8, and 20 steps add up.
as_golden() {
    awk 'NR == FNR { loss[FNR] = $1; norm[FNR] = $2; n = FNR; next }
        { match($0, /global_avg_loss": [0-9.e+-]+/); l = substr($0, RSTART + 18, RLENGTH - 18)
          match($0, /grad_norm": [0-9.e+-]+/); g = substr($0, RSTART + 12, RLENGTH - 12)
          dl = (l - loss[FNR]) / loss[FNR]; dg = (g - norm[FNR]) / norm[FNR]; k++
          if (dl < 0) dl = -dl; if (dg < 0) dg = -dg
          if (!(dl <= 2e-6) || !(dg <= 1e-4)) { print "step " FNR ": loss " l ", norm " g "; expected " loss[FNR] ", " norm[FNR]; bad = 1 } }
        END { exit bad || k != n || n != 20 }' "$1" "$2/metrics.jsonl"
}
# Names, types, shapes and bytes of the tensors of two files: "name dtype shape hash", sorted.
tensors() {
    python3 - "$1" <<'PY'
import hashlib, json, struct, sys
data = open(sys.argv[1], "rb").read()
size, = struct.unpack("<Q", data[:8])
for name, t in sorted(json.loads(data[8:8 + size]).items()):
    if name == "__metadata__": continue
    first, end = t["data_offsets"]
    print(name, t["dtype"], t["shape"], hashlib.sha256(data[8 + size + first:8 + size + end]).hexdigest())
PY
}
same_tensors() { [ -n "$(tensors "$1")" ] && diff <(tensors "$1") <(tensors "$2"); }

for model in mixtral qwen2_moe; do
    claim "$model: import" "$lockstep" import "$golden/$model" --out $model.safetensors
    claim "$model: export" "$lockstep" export $model.safetensors --out $model
    claim "$model: what is exported are the tensors of transformers, to the bit" same_tensors "$golden/$model/model.safetensors" \
        $model/model.safetensors
    claim "$model: and its config.json says which model it is" grep -q "\"model_type\": \"$model\"" $model/config.json
    claim "$model: a run" train "$golden/$model" $model-one
    claim "$model: has transformers' losses and norms" as_golden "$golden/$model.txt" $model-one
    claim "$model: a run in which ranks divide the experts" train "$golden/$model" $model-ep --parallel.ep 2
    claim "$model: has them, too" as_golden "$golden/$model.txt" $model-ep
    claim "$model: and with tp, from an export, with ZeRO" train $model $model-tp --parallel.ep 2 --parallel.tp 2 --zero.stage 2
    claim "$model: it has them, too" as_golden "$golden/$model.txt" $model-tp
    claim "$model: its checkpoint can be exported" "$lockstep" export $model-tp/checkpoints/step-00000020/model.safetensors --out $model-end
    claim "$model: has the names of transformers" diff <(tensors "$golden/$model/model.safetensors" | cut -d' ' -f1) \
        <(tensors $model-end/model.safetensors | cut -d' ' -f1)
    sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' $model/config.json
    claim "$model: tensors that are missing are named" fails_with 65 'tensors: model.layers.2' "$lockstep" import $model --out x.safetensors
done
# a run's checkpoint is a folder of transformers', too: its model.safetensors has the tensors of an export
step=checkpoints/step-00000020
digest() { "$lockstep" ckpt digest "$1" | cut -d' ' -f1; }
final() { tail -1 "$1.out" | sed 's/.* digest=//'; }
losses() { sed -nE 's/.*"step": ([0-9]+),.*global_avg_loss": ([^,]+),.*/\1 \2/p' "$1/metrics.jsonl"; }
for model in mixtral qwen2_moe; do
    for run in one ep tp; do
        at=$model-$run
        claim "$at: an export of its checkpoint" "$lockstep" export $at --out exported-$at
        claim "$at: the checkpoint's model.safetensors has its tensors, to the bit" same_tensors $at/$step/model.safetensors \
            exported-$at/model.safetensors
        claim "$at: its shapes are transformers'" diff <(tensors "$golden/$model/model.safetensors" | sed 's/ [^ ]*$//') \
            <(tensors $at/$step/model.safetensors | sed 's/ [^ ]*$//')
        claim "$at: verify" "$lockstep" ckpt verify $at/$step $at/$step/model.safetensors
        claim "$at: the file has the digest that the run prints" test "$(digest $at/$step/model.safetensors)" = "$(final $at)"
        claim "$at: and so has the export" test "$(digest exported-$at/model.safetensors)" = "$(final $at)"
        claim "$at: diff finds the parameters of the ranks' files in it" bash -c "! '$lockstep' ckpt diff $at/$step/model.safetensors $at/$step >diff.txt &&
            grep -q . diff.txt && ! grep -v '^optim\.\|^state\.' diff.txt"
        for from in exported-$at $at/$step/model.safetensors $at/$step; do
            claim "$at: $from writes" "$lockstep" generate $from --tokenizer byte --prompt 12 --temperature 0 --tokens 8
            "$lockstep" generate $from --tokenizer byte --prompt 12 --temperature 0 --tokens 8 >written 2>err
            [ $from = exported-$at ] && mv written expected || claim "$at: what the export writes" cmp expected written
        done
    done
    at=$model-never
    claim "$at: a run without the file" train "$golden/$model" $at --parallel.ep 2 --zero.stage 3 --checkpoint.consolidate never
    claim "$at: merge" "$lockstep" ckpt merge $at/$step --out $at-merged
    claim "$at: an export of the ranks' files" "$lockstep" export $at/$step --out exported-$at
    claim "$at: the merged file has its tensors, to the bit" same_tensors $at-merged/model.safetensors exported-$at/model.safetensors
    claim "$at: and the run's digest" test "$(digest $at-merged/model.safetensors)" = "$(final $at)"
    # who loads such a file, on whichever ranks, trains as from the export
    claim "$model: from the export" train exported-$model-ep $model-from-export
    number=0
    for options in '' '--parallel.ep 2' '--parallel.tp 2' '--parallel.ep 2 --zero.stage 1' '--zero.stage 3 --nproc-per-node 2'; do
        for from in $model-ep/$step/model.safetensors $model-ep/$step; do
            number=$((number + 1))
            # shellcheck disable=SC2086
            claim "$model: from $from, $options" train $from $model-from-$number $options
            claim "$model: from $from, $options: the first losses are those of the export" awk 'NR == FNR { loss[$1] = $2; n++; next }
                $1 <= 3 { d = ($2 - loss[$1]) / loss[$1]; k++; if (d > 2e-6 || d < -2e-6) { print; exit 1 } } END { exit k != 3 }' \
                <(losses $model-from-export) <(losses $model-from-$number)
        done
    done
done
# other weights than the golden ones must be seen
cp -r "$golden/qwen2_moe" wrong && sed -i 's/"norm_topk_prob": false/"norm_topk_prob": true/' wrong/config.json
claim 'another rule of weights' train wrong other
differs() { ! as_golden "$golden/qwen2_moe.txt" other; }
claim 'gives other losses' differs
finish
