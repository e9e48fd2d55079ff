#!/bin/bash
# Python reads what Lockstep writes: with the lines that README.md shows, and
# with the safetensors package where that is installed.
. "$(dirname "$0")/harness.sh"

if ! python3 -c 'import array, json, struct' 2>/dev/null; then
    echo 'skipped: there is no python3 with its library'
    finish
fi
cd "$tmp" || exit 1
"$build"/examples/train_single --epochs 1 --d-in 8 --d-hidden 16 --d-out 4 --out model.safetensors >/dev/null || exit 1

# The block of README.md that begins with the import, unchanged; it prints names and shapes.
sed -n '/^```python/,/^```/p' "$source_dir/README.md" | sed '/^```/d' >readme.py
claim 'README.md shows how to read a checkpoint' test -s readme.py
claim 'in three lines' test "$(grep -c . readme.py)" = 3
claim 'which run, and see the tensors' has_line '0.weight [16, 8]' python3 readme.py

cat >check.py <<'END'
import json, struct, sys
f = open('model.safetensors', 'rb')
n, = struct.unpack('<Q', f.read(8))
raw = f.read(n)
header = json.loads(raw)
meta = header.pop('__metadata__')
assert (8 + n) % 64 == 0 and raw[:1] == b'{' and raw.rstrip(b' ')[-1:] == b'}'
assert all(isinstance(v, str) for v in meta.values()) and meta['format'] == 'pt'
at = 0
for name, t in header.items():
    begin, end = t['data_offsets']
    count = 1
    for d in t['shape']: count *= d
    assert t['dtype'] == 'F32' and begin == at and end - begin == 4 * count, name
    at = end
assert len(f.read()) == at
assert list(header) == ['0.weight', '0.bias', '2.weight', '2.bias'], list(header)
END
claim 'the layout is the one of the format' python3 check.py

cat >package.py <<'END'
from safetensors import safe_open
with safe_open('model.safetensors', framework='np') as f:
    assert f.metadata()['format'] == 'pt'
    assert f.get_tensor('0.weight').shape == (16, 8)
    assert abs(f.get_tensor('0.bias')).max() < 1
END
if python3 -c 'import safetensors, numpy' 2>/dev/null; then
    claim 'the safetensors package reads it' python3 package.py
else
    echo 'skipped: the safetensors package is not installed'
fi

# --- the block of docs/formats.md about the exercise's model, unchanged. PyTorch itself runs it in long_exercise_torch.sh; here
# stand-ins for torch and safetensors have PyTorch's rule of names and its strictness, and no arithmetic.
"$build"/examples/train_ddp --world-size 2 --port 0 --epochs 1 --out ddp_model.safetensors >/dev/null || exit 1
sed -n '/^import torch$/,/^```/p' "$source_dir/docs/formats.md" | sed '/^```/d' >formats.py
claim 'docs/formats.md shows how PyTorch loads the exercise' grep -q load_state_dict formats.py
mkdir safetensors torch
cat >torch/__init__.py <<'END'
class nn:
    class Module:
        def names(self, front=''):
            for name, child in vars(self).items():
                if isinstance(child, nn.Module): yield from child.names(front + name + '.')
        def load_state_dict(self, state):
            want = dict(self.names())
            got = {name: t['shape'] for name, t in state.items()}
            if want != got: raise SystemExit('expected %s, found %s' % (want, got))
            print('loaded', *sorted(got))
    class Linear(Module):
        def __init__(self, n, m): self.shape = n, m
        def names(self, front=''):
            yield front + 'weight', [self.shape[1], self.shape[0]]
            yield front + 'bias', [self.shape[1]]
    class ReLU(Module): pass
    class Sequential(Module):
        def __init__(self, *children):
            for i, child in enumerate(children): vars(self)[str(i)] = child
END
touch safetensors/__init__.py
cat >safetensors/torch.py <<'END'
import json, struct
def load_file(path):
    f = open(path, 'rb')
    header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    header.pop('__metadata__')
    return header
END
loads() { diff <(printf '%s\n' 'loaded net.0.bias net.0.weight net.2.bias net.2.weight' 'loaded 0.bias 0.weight 2.bias 2.weight') <(PYTHONPATH=$tmp python3 formats.py); }
claim 'a module with layers net.0 and net.2 loads it, and nn.Sequential with the helper' loads
finish
