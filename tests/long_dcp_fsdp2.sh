#!/bin/bash
# long_dcp_fsdp2.sh -- Lockstep reads what PyTorch's DCP saved of FSDP2 models with AdamW (HuggingFaceStorageWriter): parameters,
# moments and steps to the bit, and a run that goes on from it on any number of ranks. Needs torch 2.8 or newer, numpy
# and safetensors (bench/peers/fetch --torch, or PYTHONPATH).
#
#   tests/long_dcp_fsdp2.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1 PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$source_dir/.cache/peers/torch
claim 'torch, numpy and safetensors are here: bench/peers/fetch --torch brings them' python3 -c \
    'import numpy, safetensors; from torch.distributed.checkpoint import HuggingFaceStorageWriter'
[ "$failed" = 0 ] || finish
small_text 60
cat >gpt2.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16 }
data: { path: $tmp/tokens }
train: { steps: 3, global_batch: 24, seq_len: 12 }
optim: { name: adamw, lr: 0.01 }
YAML
cat >mlp.yaml <<YAML
model: { name: mlp, dims: [64, 13, 10] }
data: { name: synthetic }
train: { steps: 3, global_batch: 24 }
optim: { name: adamw, lr: 0.01 }
YAML
"$lockstep" train gpt2.yaml --train.steps 1 --run.dir first >/dev/null 2>&1
VOCAB=$("$lockstep" ckpt ls first/checkpoints/step-00000001 --json | python3 -c '
import json, sys
print(next(t["shape"][0] for t in json.load(sys.stdin)["tensors"] if t["name"] == "transformer.wte.weight"))')
export VOCAB
claim 'PyTorch saves' timeout -k 5 400 python3 -W ignore "$source_dir/tests/long_dcp_fsdp2.py" torch

same_as_torch() { # a checkpoint of Lockstep's with all that want.safetensors has: equal bits, and equal numbers of updates
    python3 - "$1" "$2" <<'PY'
import sys
from glob import glob
from safetensors import safe_open
import torch
want, found = {}, {}
with safe_open(sys.argv[2], 'pt') as f:
    want = {k: f.get_tensor(k) for k in f.keys()}
for path in glob(sys.argv[1] + '/sharded/*.safetensors'):
    with safe_open(path, 'pt') as f:
        assert not set(f.keys()) & set(found) # one rank saved it
        found |= {k: f.get_tensor(k) for k in f.keys()}
assert len([k for k in want if k.startswith('optim.step.')]) * 4 == len(want)
for k, v in want.items():
    if k.startswith('optim.step.'): assert found[k].item() == v.item() == 3, k
    else: assert found[k].dtype == v.dtype == torch.float32 and torch.equal(found[k].view(torch.int32), v.view(torch.int32)), k
PY
}
train() { timeout -k 5 100 "$lockstep" train "$@" >out 2>err; }
for model in mlp gpt2; do
    for form in keys plain consolidated; do
        from=torch/$model-$form
        claim "$from: the whole tensors are PyTorch's" test "$("$lockstep" ckpt diff $from torch/$model-want.safetensors)" = \
            "the same $([ $model = mlp ] && echo 16 || echo 112) tensors, to the bit"
        claim "$from: another value is seen" fails_with 1 '' "$lockstep" ckpt diff $from torch/$model-other.safetensors
        claim "$from: show" has_line "$from: saved by another program" "$lockstep" ckpt show $from
        claim "$from: verify says that there is nothing to check" has_line 'of another program, well-formed; there are no checksums' "$lockstep" ckpt verify $from
        claim "$from: merge" "$lockstep" ckpt merge $from --out merged-$model-$form
        claim "$from: merge: the same digest" test "$("$lockstep" ckpt digest merged-$model-$form/model.safetensors | cut -d' ' -f1)" = \
            "$("$lockstep" ckpt digest $from | cut -d' ' -f1)"
        # With nothing left to do a run saves what it has loaded; one rank's files have all of it.
        claim "$from: loaded" train $model.yaml --checkpoint.resume $from --run.dir loaded-$model-$form
        claim "$from: it says from where" grep -qx "resuming $from, saved by another program: the optimizer's state is of step 3, .*" out
        claim "$from: parameters, moments and steps to the bit" same_as_torch loaded-$model-$form/checkpoints/step-00000003 torch/$model-want.safetensors
        claim "$from: which that claim would see" fails_with 1 AssertionError same_as_torch loaded-$model-$form/checkpoints/step-00000003 torch/$model-other.safetensors
    done
    # Going on: from PyTorch's files as from Lockstep's of the same values.
    for ranks in 2 3; do
        for stage in 0 2 3; do
            train $model.yaml -n $ranks --zero.stage $stage --train.steps 6 --checkpoint.resume torch/$model-keys --run.dir a-$model-$ranks-$stage
            a=$(tail -1 out)
            train $model.yaml -n $ranks --zero.stage $stage --train.steps 6 --checkpoint.resume torch/$model-consolidated --run.dir b-$model-$ranks-$stage
            claim "$model, $ranks ranks, stage $stage: goes on" test "${a:0:12}" = 'final step=6' -a "$(tail -1 out)" = "$a"
            claim "$model, $ranks ranks, stage $stage: steps count from PyTorch's" grep -q '^{"step": 4,' a-$model-$ranks-$stage/metrics.jsonl
        done
    done
    claim "$model: only weights: what is missing is named" fails_with 65 "has no tensor 'optim.step." "$lockstep" train $model.yaml --checkpoint.resume torch/$model-weights --run.dir no
    claim "$model: pickles among the tensors are refused by name" fails_with 65 'torch/'$model'-pickles/shard-00002-model-00001-of-00001.safetensors: this is a pickle' \
        "$lockstep" train $model.yaml --checkpoint.resume torch/$model-pickles --run.dir no
done
claim 'another optimizer: what is missing is named' fails_with 65 'it was saved with another optimizer' "$lockstep" train mlp.yaml --optim.name sgd --checkpoint.resume torch/mlp-keys --run.dir no
claim 'another size' fails_with 65 "tensor '0.weight' has shape [13, 64], the program's has [12, 64]" "$lockstep" train mlp.yaml --model.dims 64,12,10 --checkpoint.resume torch/mlp-keys --run.dir no
claim 'a tied head under both names' train gpt2.yaml --checkpoint.resume torch/gpt2-tied --run.dir tied
claim 'a tied head under both names: to the bit' same_as_torch tied/checkpoints/step-00000003 torch/gpt2-want.safetensors
claim 'a head that is not tied' fails_with 65 "has a tensor 'lm_head.weight', which the model does not know" \
    "$lockstep" train gpt2.yaml --checkpoint.resume torch/gpt2-untied --run.dir no
printf '\x80\x02}q\x00.' >model.pt
claim 'a .pt file' fails_with 65 'model.pt: this is a pickle' "$lockstep" train mlp.yaml --checkpoint.resume model.pt --run.dir no
claim 'nothing was begun' test ! -e no
finish
