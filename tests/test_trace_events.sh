#!/bin/bash
# test_trace_events.sh -- what the trace says of collectives and of gradient buckets: each bucket is ready, launched,
# reduced and applied in this order, by which algorithm, with whom, and how many bytes; and units of ZeRO that are
# gathered and released.
#
#   tests/test_trace_events.sh BUILD
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read a trace'; exit 1; }

cat >base.yaml <<YAML
model: { name: mlp, dims: [64, 128, 64, 32] }
data: { name: synthetic }
train: { steps: 6, global_batch: 36 }
optim: { name: sgd, lr: 0.1 }
ddp: { first_bucket: 1KiB, bucket_cap: 16KiB }
trace: { steps: "3:6" }
YAML
run() { # ranks, flags...
    local n=$1
    shift
    rm -rf run
    "$lockstep" train base.yaml -n "$n" --run.dir run "$@" >out 2>err || { cat err; return 1; }
}
# Asserts of python3 about the trace: at(step, rank) are its events of a rank and step, in order of time.
look() {
    python3 - "$@" <<PY
import json
trace = json.load(open('run/trace/trace.json'))['traceEvents']
def at(step, rank):
    return sorted((e for e in trace if e['ph'] in 'Xi' and e['pid'] == rank and e['args']['step'] == step), key=lambda e: e['ts'])
def ends(e):
    return round(e['ts'] + e['dur'], 3)
def buckets(es):
    return [e for e in es if e['cat'] == 'comm' and 'bucket' in e['args']]
$(cat)
PY
}

# Parameters 5, 4 (of 32 outputs), 3, 2, 1, 0 arrive in this order; each bucket is closed by the one that exceeds its limit.
BUCKETS='[4 * (32 + 64 * 32), 4 * (64 + 64 * 128), 4 * (128 + 128 * 64)]'

in_order() { # what DDP says of itself
    look <<PY
for step in range(3, 7):
    for rank in range($1):
        es = at(step, rank)
        ready = [e for e in es if e['ph'] == 'i' and e['name'] == 'ready']
        coll = buckets(es)
        update, = [e for e in es if e['name'] == 'optimizer step']
        assert [e['args']['bucket'] for e in ready] == [0, 1, 2], ready
        assert [e['args']['bucket'] for e in coll] == [0, 1, 2], coll
        for r, c in zip(ready, coll):
            assert r['ts'] <= c['ts'] and ends(c) <= update['ts'], (r, c, update)
        assert [e['args']['coll'] for e in coll] == ['all_reduce'] * 3
        assert [e['args']['algo'] for e in coll] == ['$2'] * 3, coll
        assert [e['args']['peers'] for e in coll] == [', '.join(str(r) for r in range($1) if r != rank)] * 3, coll
        # padded to a cache line of each rank
        for c, want in zip(coll, $BUCKETS):
            assert want <= c['args']['bytes'] < want + 64 * $1 + 128, (c, want)
PY
}
ring_bytes() { # 2 (W-1)/W of the vector leave a rank
    look <<PY
for step in range(3, 7):
    for rank in range(3):
        for c in buckets(at(step, rank)):
            assert c['args']['moved'] * 3 == c['args']['bytes'] * 4, c
PY
}
run 2
claim 'DDP: a bucket is ready, launched, reduced, and then applied' in_order 2 fold
shared_bytes() { # in memory a rank reads its half of the other's vector, and writes it
    look <<PY
for c in (c for step in range(3, 7) for rank in range(2) for c in buckets(at(step, rank))):
    assert c['args']['moved'] == c['args']['bytes'], c
PY
}
claim 'and its bytes are those that it read and wrote' shared_bytes
waits() { # a wait says of itself what its collective says
    look <<PY
keys = 'coll algo bucket peers moved bytes seq group'.split()
colls = {(e['pid'], e['args']['group'], e['args']['seq']): e for e in trace if e['ph'] == 'X' and e['cat'] == 'comm'}
n = 0
for e in (e for e in trace if e['ph'] == 'X' and e['cat'] == 'wait'):
    c = colls[e['pid'], e['args']['group'], e['args']['seq']]
    assert [c['args'].get(k) for k in keys] == [e['args'].get(k) for k in keys], (c, e)
    n += 1
assert n > 0
PY
}
run 3 --comm.transport tcp --comm.algo ring
claim 'over connections, too' in_order 3 ring
claim 'and its bytes are those of a ring' ring_bytes
claim 'a wait names the collective that it is for' waits
hooked() {
    look <<PY
for rank in range(2):
    coll = buckets(at(4, rank))
    assert [(e['args']['bucket'], e['args']['dtype']) for e in coll] == [(k, 'bfloat16') for k in range(3)], coll
PY
}
run 2 --ddp.hook bf16
claim 'a hook names its buckets, too' hooked

sharded() { # ZeRO 3 where each rank gathers: units 0, 1, 2 forward, 2, 1, 0 backward, each gathered before and released after
    look <<PY
for rank in range(2):
    es = at(5, rank)
    gather = [e for e in es if e['name'].startswith('values of unit') and e['cat'] == 'comm']
    release = [e for e in es if e['name'].startswith('release unit')]
    assert [e['name'][-1] for e in gather] == list('012210'), gather
    assert [e['name'][-1] for e in release] == list('012210'), release
    assert all(e['args']['coll'] == 'all_gather' for e in gather)
    for g, r, products in zip(gather, release, ('64x128', '128x64', '64x32', '64x32', '128x64', '64x128')):
        assert any(e['name'] == 'linear ' + products and ends(g) <= e['ts'] and ends(e) <= r['ts'] for e in es), (g, r)
    sums = buckets(es)
    assert [(e['args']['bucket'], e['args']['coll']) for e in sums] == [(k, 'reduce_scatter') for k in range(3)], sums
    for s, r in zip(sums, release[3:]):
        assert s['ts'] >= [e for e in es if e['name'] == 'ready'][s['args']['bucket']]['ts']
PY
}
run 2 --zero.stage 3 --zero.copy rank --zero.reshard always --zero.prefetch 0
claim 'ZeRO 3: a unit is gathered, used and released, twice, and its gradients reduce_scattered' sharded

finish
