#!/bin/bash
# test_train_samples.sh -- log.samples: runs that are killed and go on with other numbers of ranks, over the ends of epochs, use
# every sample of an epoch exactly once, in the order of one rank that was never killed.
#
#   tests/test_train_samples.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
if ! python3 -c 'import json' 2>/dev/null; then echo 'skipped: no python3'; finish; fi
# 1000 samples: 41 steps of 24 and one of 16. With 3 ranks the last step has 18, and 2 of them are repeats.
cat >mlp.yaml <<YAML
model: { name: mlp, dims: [8, 4, 3] }
data: { name: synthetic }
train: { steps: 90, global_batch: 24, seed: 3 }
log: { tensorboard: false, samples: true }
checkpoint: { every: 7, resume: auto }
YAML
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 1, n_head: 2, d_model: 8, seq_len: 12 }
data: { path: $tmp/tokens }
train: { steps: 30, global_batch: 24, seed: 3 }
log: { tensorboard: false, samples: true }
checkpoint: { every: 4, resume: auto }
YAML

cat >check.py <<'PY'
"""check.py RUN ALONE STEPS GLOBAL_BATCH N DROP_LAST RANKS...: the log of RUN, whose steps used so many ranks each (a list FROM:RANKS
of steps in ascending order), against that of one rank that was never stopped. N: samples; 0: as many as ALONE has used."""
import json, sys
from glob import glob
run, alone, steps, batch, n, drop_last = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
ranks_from = [tuple(map(int, r.split(':'))) for r in sys.argv[7:]]

def read(folder):
    lines = [json.loads(l) for path in glob(folder + '/samples/rank-*.jsonl') for l in open(path)]
    for l in lines: assert len(l['epochs']) == len(l['positions']) == len(l['indices']) > 0
    return lines

reference = {}  # (epoch, position) -> index
for l in read(alone):
    for e, p, i in zip(l['epochs'], l['positions'], l['indices']):
        assert (e, p) not in reference
        reference[e, p] = i
features = n > 0
n = n or 1 + max(p for e, p in reference)

by_step = {}
for l in read(run): by_step.setdefault(l['step'], []).append(l)
assert sorted(by_step) == list(range(1, steps + 1)), sorted(by_step)
seen = {}  # epoch -> positions, in the order of steps
for step, lines in sorted(by_step.items()):
    ranks = [r for first, r in ranks_from if step >= first][-1]
    assert sorted((l['rank'], l['ranks']) for l in lines) == [(r, ranks) for r in range(ranks)], (step, lines)
    assert len({len(l['indices']) for l in lines}) == 1 # as many on every rank
    here = sorted((e, p, i) for l in lines for e, p, i in zip(l['epochs'], l['positions'], l['indices']))
    assert len({(e, p) for e, p, i in here}) == len(here)
    if features: # what torch's DistributedSampler pads the order of n with: its own beginning
        per_epoch = n // batch if drop_last else -(-n // batch)
        first = (step - 1) % per_epoch * batch
        total = n // ranks * ranks if drop_last else -(-n // ranks) * ranks
        assert [p for e, p, i in here] == list(range(first, min(first + batch, total))), (step, here)
        assert {e for e, p, i in here} == {(step - 1) // per_epoch}
        for e, p, i in here:
            if p >= n: assert i == reference[e, p - n], (e, p, i)
    for e, p, i in here:
        if p < n: assert i == reference[e, p], (step, e, p, i)
        seen.setdefault(e, []).append((p, i))
last = max(seen)
for epoch, list_of in seen.items():
    whole = [(p, i) for p, i in list_of if p < n]
    indices = [i for p, i in whole]
    assert len(set(indices)) == len(indices)  # none twice
    if epoch == last and features and len(list_of) < n - n % batch: continue  # the run ends in it
    if epoch == last and not features: continue
    left = n % batch if features and drop_last else 0
    assert len(indices) == n - left, (epoch, len(indices))
    assert set(indices) <= set(range(n)) and (left or set(indices) == set(range(n)))
padding = sum(p >= n for l in seen.values() for p, i in l)
print(len(seen), 'epochs', padding, 'repeats')
PY
train() { timeout -k 5 100 "$lockstep" train "$@" >out 2>err; }
for drop in false true; do
    rm -rf alone cut
    train mlp.yaml --data.drop_last $drop --run.dir alone
    # Killed in steps 30, 50 and 80; the checkpoints before them are of 28, 49 and 77; epochs end with steps 41 or 42, and 82 or 84.
    train mlp.yaml -n 2 --data.drop_last $drop --run.dir cut --inject kill@1:30
    train mlp.yaml -n 3 --data.drop_last $drop --run.dir cut --inject kill@0:50
    train mlp.yaml -n 1 --data.drop_last $drop --run.dir cut --inject kill@0:80 2>/dev/null
    train mlp.yaml -n 4 --data.drop_last $drop --run.dir cut
    claim "drop_last $drop: it ended" test "$(tail -1 out | cut -d' ' -f1,2)" = 'final step=90'
    claim "drop_last $drop: every sample of an epoch once, and the repeats of 3 ranks" test "$(python3 check.py cut alone 90 24 1000 $([ $drop = true ] && echo 1 || echo 0) 1:2 29:3 50:1 78:4)" = \
        "3 epochs $([ $drop = true ] && echo 0 || echo 2) repeats"
done
cp -r cut twice
head -1 twice/samples/rank-00001.jsonl >>twice/samples/rank-00001.jsonl
claim 'a sample that is used twice is seen' fails_with 1 AssertionError python3 check.py twice alone 90 24 1000 1 1:2 29:3 50:1 78:4
sed -i 2d twice/samples/rank-00001.jsonl
claim 'a line that lacks is seen' fails_with 1 AssertionError python3 check.py twice alone 90 24 1000 1 1:2 29:3 50:1 78:4
rm -rf alone cut
train mlp.yaml --train.global_batch 28 --run.dir alone
train mlp.yaml -n 7 --train.global_batch 28 --run.dir cut --inject kill@5:20
train mlp.yaml -n 7 --train.global_batch 28 --run.dir cut
claim '7 ranks: one repeat in each epoch that ended' test "$(python3 check.py cut alone 90 28 1000 0 1:7)" = '3 epochs 2 repeats'
rm -rf alone cut
train mlp.yaml --data.shuffle false --train.steps 43 --run.dir alone
claim 'not shuffled: positions are indices' test "$(head -1 alone/samples/rank-00000.jsonl | grep -oE '"(positions|indices)": \[[^]]*\]' | cut -d: -f2 | uniq | wc -l)" = 1

rm -rf alone cut
train gpt.yaml --run.dir alone
train gpt.yaml -n 2 --zero.stage 2 --run.dir cut --inject kill@1:11
train gpt.yaml -n 4 --zero.stage 3 --run.dir cut --inject kill@0:18
train gpt.yaml -n 3 --train.micro_batch 2 --run.dir cut
claim 'tokens: every window of an epoch once, over its end' test "$(python3 check.py cut alone 30 24 0 0 1:2 9:4 17:3 | cut -d' ' -f2-)" = 'epochs 0 repeats'
claim 'tokens: more than one epoch' test "$(python3 check.py cut alone 30 24 0 0 1:2 9:4 17:3 | cut -d' ' -f1)" -ge 2

train gpt.yaml -n 2 --log.samples false --run.dir none --train.steps 2
claim 'off: nothing is written' test ! -e none/samples
mkdir -p full && mkdir full/samples && ln -s /dev/full full/samples/rank-00000.jsonl
claim 'a link in place of a file ends the run' fails_with 74 'full/samples/rank-00000.jsonl: cannot be opened' "$lockstep" train mlp.yaml --run.dir full
finish
