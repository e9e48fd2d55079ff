#!/bin/bash
# long_crash_saves.sh -- a training is killed at each system call by which a rank changes files, or that call fails with ENOSPC
# or EIO: what was durable is whole, and the run goes on to the undisturbed end. strace makes that happen.
#
#   tests/long_crash_saves.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
command -v strace >/dev/null || { echo 'strace is missing: scripts/setup --strace'; exit 1; }
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 1, n_head: 2, d_model: 16, seq_len: 16 }
data: { path: $tmp/tokens }
train: { global_batch: 8, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01 }
log: { tensorboard: false }
YAML
crash() { python3 "$source_dir/tests/crash_saves.py" "$lockstep" "$@" 2>&1 | tee -a crash.log; return "${PIPESTATUS[0]}"; }
claim 'rank 0 killed at each call' crash --rank 0
claim 'rank 1 killed at each call, stage 3' crash --rank 1 --stage 3
claim 'no space for rank 0 at each call' crash --rank 0 --error ENOSPC
claim 'no space for rank 1 at each call' crash --rank 1 --error ENOSPC
claim 'an I/O error of rank 0 at each call' crash --rank 0 --error EIO
claim 'an I/O error of rank 1 at each call, stage 3' crash --rank 1 --error EIO --stage 3
cat crash.log
finish
