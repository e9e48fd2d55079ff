#!/bin/bash
# long_hf_random.sh -- 40 random GPT-2 and 40 random Llama of transformers', given to `lockstep train` by --model.load alone:
# 6 steps of AdamW have the losses and the weights of transformers + torch (tests/golden/hf_random.py says to what
# tolerance). Skipped where no Python has them; LOCKSTEP_ORACLE_PYTHON names one that has.
#
#   tests/long_hf_random.sh BUILD [gpt2-17 ...]
. "$(dirname "$0")/harness.sh"
python=${LOCKSTEP_ORACLE_PYTHON:-python3}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1 OMP_NUM_THREADS=1 TMPDIR=$tmp
"$python" -c 'import torch, transformers, safetensors' 2>/dev/null ||
    { echo "skipped: $python has no torch, transformers and safetensors"; finish; }
shift
"$python" "$source_dir/tests/golden/hf_random.py" "$build/lockstep" "$@"
