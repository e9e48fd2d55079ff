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
# other weights than the golden ones must be seen
cp -r "$golden/qwen2_moe" wrong && sed -i 's/"norm_topk_prob": false/"norm_topk_prob": true/' wrong/config.json
claim 'another rule of weights' train wrong other
differs() { ! as_golden "$golden/qwen2_moe.txt" other; }
claim 'gives other losses' differs
finish
