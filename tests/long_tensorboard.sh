#!/bin/bash
# long_tensorboard.sh -- TensorBoard's own reader finds in our event files what metrics.jsonl says. Skipped where no Python
# has it and pip cannot fetch it; LOCKSTEP_ORACLE_PYTHON names one that has (pip install tensorboard).
#
#   tests/long_tensorboard.sh BUILD
. "$(dirname "$0")/harness.sh"
golden=$source_dir/tests/golden
cd "$tmp" || exit 1
has() { "$1" -c 'import tensorboard.backend.event_processing.event_accumulator' 2>/dev/null; }
python=${LOCKSTEP_ORACLE_PYTHON:-python3}
venv=$source_dir/.cache/oracles/tensorboard # kept, so that it is made once
if ! has "$python"; then
    [ -e "$venv/done" ] || { python3 -m venv "$venv" && "$venv/bin/pip" -q install tensorboard && touch "$venv/done"; } >/dev/null 2>&1
    python=$venv/bin/python
fi
has "$python" || { echo "skipped: $python has no tensorboard, and pip could not fetch it"; finish; }

claim 'a run of 40 steps on 2 ranks' "$build/lockstep" train --data.name synthetic --model.dims 64,32,10 --train.epochs 10 \
    --train.global_batch 250 --log.every 4 --nproc-per-node 2 --run.dir run
claim 'its reader reads every record' bash -c "'$python' '$golden/make-tensorboard.py' read run/tb >scalars"

same_as_metrics() { # every number of the steps with a line (1, 4, 8 ...) and of those with an evaluation, to float
    "$python" - <<'PY'
import json, struct
f32 = lambda v: struct.unpack('f', struct.pack('f', v))[0]
lines = {l['step']: l for l in map(json.loads, open('run/metrics.jsonl'))}
want = {(tag, step): f32(v) for step, l in lines.items() if step == 1 or step % 4 == 0 or 'eval/loss' in l
        for tag, v in l.items() if tag != 'step'}
got, times = {}, []
for line in open('scalars'):
    tag, step, value, time = line.rsplit(' ', 3)
    got[tag, int(step)] = float(value)
    times.append(float(time))
assert len(lines) == 40 and len({s for _, s in want}) == 11, (len(lines), len(want))
assert got == want, set(got.items()) ^ set(want.items())
assert max(times) - min(times) < 600 and min(times) > 1.6e9, times
PY
}
claim 'and finds the numbers of metrics.jsonl' same_as_metrics

damaged() { # one bit of the file's last record: the checksum is one that its reader checks
    "$python" - <<'PY'
import glob
p, = glob.glob('run/tb/*')
b = bytearray(open(p, 'rb').read())
b[-10] ^= 1
open(p, 'wb').write(b)
PY
    "$python" "$golden/make-tensorboard.py" read run/tb 2>/dev/null >fewer
    test "$(wc -l <fewer)" -lt "$(wc -l <scalars)"
}
claim 'a flipped bit is noticed' damaged
finish
