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
finish
