#!/bin/bash
# long_exercise_torch.sh -- the real PyTorch loads the exercise's model with the lines of docs/formats.md, into a module with
# self.net and into nn.Sequential, and computes the loss that Lockstep computes. Skipped where no Python has torch and
# safetensors; LOCKSTEP_ORACLE_PYTHON names one that has.
#
#   tests/long_exercise_torch.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
python=${LOCKSTEP_ORACLE_PYTHON:-python3}
"$python" -c 'import torch, safetensors' 2>/dev/null || { echo "skipped: $python has no torch and safetensors"; finish; }
"$build"/examples/train_ddp --world-size 2 --port 0 --epochs 3 --out ddp_model.safetensors >/dev/null || exit 1
sed -n '/^import torch$/,/^```/p' "$source_dir/docs/formats.md" | sed '/^```/d' >check.py
cat >>check.py <<'END'
torch.manual_seed(0)
x = torch.randn(1000, 64)
y = torch.randint(0, 10, (1000,))
for m in (model, net):
    print('%.4f' % torch.nn.functional.cross_entropy(m(x), y))
END
"$python" check.py >torch.out || exit 1
"$build/lockstep" train --data.name synthetic --model.dims 64,128,10 --data.shuffle false --train.steps 1 --train.global_batch 1000 \
    --optim.lr 0 --model.load ddp_model.safetensors --run.dir run >out || exit 1
ours=$("$python" -c 'import re, sys; print("%.4f" % float.fromhex(re.search("loss=(\\S+)", sys.argv[1])[1]))' "$(tail -1 out)")
claim 'PyTorch computes the loss that Lockstep computes, in both forms' test "$(sort -u torch.out)" = "$ours"
finish
