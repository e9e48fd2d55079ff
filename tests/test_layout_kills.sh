#!/bin/bash
# test_layout_kills.sh -- a rank of a random layout (data, tensor, sequence, context, pipeline and expert parallelism, ZeRO) is
# killed (tests/layout_kills.py): the report names it, each launcher ends in time, nothing is left, and another random layout resumes
# with the losses of one rank. LOCKSTEP_RUNS layouts without experts, and as many with them, from LOCKSTEP_SEED on.
#
#   tests/test_layout_kills.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
"$lockstep" secret new s >/dev/null || exit 1
# With the usual eps, 1e-8, a gradient that is 0 except for rounding, as of biases of keys, moves a weight by all of lr.
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 4, n_head: 8, d_model: 32, seq_len: 32, embd_dropout: 0.1, attn_dropout: 0.1, resid_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { global_batch: 8, seed: 1 }
optim: { name: adamw, lr: 0.01, eps: 1e-3, clip: 1.0 }
log: { tensorboard: false }
YAML
sed 's/^model:.*/model: { name: moe, n_layer: 4, n_head: 8, d_model: 32, d_expert: 16, n_experts: 4, seq_len: 32 }/' gpt.yaml >moe.yaml
runs=${LOCKSTEP_RUNS:-8} seed=${LOCKSTEP_SEED:-1} # 1 to 8 have each axis, each stage, one launcher and two, both transports
kills() { python3 "$source_dir/tests/layout_kills.py" "$lockstep" "$@" --runs "$runs" --seed "$seed"; }
claim "$runs layouts from seed $seed on" kills gpt.yaml
claim "$runs layouts of experts from seed $seed on" kills moe.yaml --experts
finish
