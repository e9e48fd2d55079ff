#!/bin/bash
# test_explain_layouts.sh -- `lockstep explain` of random layouts is what their runs count: calls and bytes of every group of every
# rank, and memory, to the byte (R91). 8 layouts; LOCKSTEP_RUNS of them from LOCKSTEP_SEED on where these are set.
#
#   tests/test_explain_layouts.sh BUILD
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read JSON'; exit 1; }
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 8, d_model: 64, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 16, eval_every: 0 }
optim: { name: adamw, clip: 1 }
YAML
export OMP_NUM_THREADS=1
layouts() { "$source_dir/tests/explain_layouts.py" "$lockstep" base.yaml "${LOCKSTEP_SEED:-1}" "${LOCKSTEP_RUNS:-8}" >layouts.out 2>&1 || { tail -3 layouts.out; return 1; }; }
claim 'the plan of each layout is what its run counts' layouts
cat layouts.out

finish
