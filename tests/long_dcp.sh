#!/bin/bash
# long_dcp.sh -- PyTorch's own reader, torch.distributed.checkpoint.HuggingFaceStorageReader, reads what ranks have saved: the
# model's tensors are those of model.safetensors to the bit. Needs torch 2.8 or newer, numpy and safetensors (bench/peers/fetch
# --torch, or PYTHONPATH).
#
#   tests/long_dcp.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1 PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$source_dir/.cache/peers/torch
claim 'torch, numpy and safetensors are here: bench/peers/fetch --torch brings them' python3 -c \
    'import safetensors; from torch.distributed.checkpoint import HuggingFaceStorageReader'
[ "$failed" = 0 ] || finish
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16 }
data: { path: $tmp/tokens }
train: { steps: 4, global_batch: 24, seq_len: 12 }
optim: { name: adamw, lr: 0.01 }
YAML
cat >dcp.py <<'PY'
import sys
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open

folder = sys.argv[1]
reader = lambda: dcp.HuggingFaceStorageReader(folder + '/sharded')
meta = reader().read_metadata().state_dict_metadata
got = {k: torch.zeros(m.size, dtype=m.properties.dtype) for k, m in meta.items()}
dcp.load(got, storage_reader=reader(), no_dist=True)
with safe_open(folder + '/model.safetensors', 'pt') as f:
    names = list(f.keys())
    assert all(torch.equal(f.get_tensor(k), got[k]) for k in names)
assert len(names) == 28 and got['state.step'].item() == got['optim.steps'].item() == 4
for k in names: # moments have their parameter's shape, and some are not zero
    assert got['optim.exp_avg.' + k].shape == got['optim.exp_avg_sq.' + k].shape == got[k].shape
assert sum(bool(got['optim.exp_avg_sq.' + k].any()) for k in names) == 28
PY
for stage in 0 1 2 3; do
    "$lockstep" train gpt.yaml -n 3 --zero.stage $stage --run.dir "s$stage" >/dev/null 2>&1
    claim "stage $stage on 3 ranks: PyTorch reads it" python3 -W ignore dcp.py "s$stage/checkpoints/step-00000004"
done
# the first float of the second rank's file is of the model
shard=s2/checkpoints/step-00000004/sharded/shard-00002-model-00001-of-00001.safetensors
printf '\x7f' | dd of="$shard" bs=1 seek=$((8 + $(od -An -tu8 -N8 "$shard") + 3)) conv=notrunc status=none
claim 'a changed value of one rank is seen by that claim' fails_with 1 AssertionError python3 -W ignore dcp.py s2/checkpoints/step-00000004
finish
