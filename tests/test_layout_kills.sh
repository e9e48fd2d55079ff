#!/bin/bash
# test_layout_kills.sh -- a rank of tensor, sequence, context and expert parallel layouts is killed (tests/layout_kills.py): the
# report names it and its step, each launcher ends in time, nothing is left. LOCKSTEP_RUNS layouts of both from LOCKSTEP_SEED on.
#
#   tests/test_layout_kills.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
"$lockstep" secret new s >/dev/null || exit 1
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 4, d_model: 16, seq_len: 16 }
data: { path: $tmp/tokens }
train: { global_batch: 8, seed: 1 }
optim: { name: adamw, lr: 2e-3, clip: 1.0 }
log: { tensorboard: false }
YAML
runs=${LOCKSTEP_RUNS:-4} seed=${LOCKSTEP_SEED:-8} # 8 to 11 have one launcher and two, both transports, all stages
claim "$runs layouts from seed $seed on" python3 "$source_dir/tests/layout_kills.py" "$lockstep" gpt.yaml --runs "$runs" --seed "$seed"
sed 's/^model:.*/model: { name: moe, n_layer: 2, n_head: 4, d_model: 16, d_expert: 16, n_experts: 4, seq_len: 16 }/' gpt.yaml >moe.yaml
claim "$runs layouts of experts from seed $seed on" \
    python3 "$source_dir/tests/layout_kills.py" "$lockstep" moe.yaml --experts --runs "$runs" --seed "$seed"
finish
