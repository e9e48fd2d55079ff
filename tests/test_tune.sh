#!/bin/bash
# lockstep tune buckets: the table's shape, the recommended cap, what was measured, and wrong input. No claim depends on a time.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
lockstep=$build/lockstep
recipe=$source_dir/recipes/exercise-mlp.yaml
deep='--model.dims 64,128,128,128,128,10'
tune() { "$lockstep" tune buckets -n 2 "$recipe" --steps "$1" $deep "${@:2}"; }

tune 2 --ddp.first_bucket 16KiB --ddp.bucket_cap 40KiB >table || exit 1
tune 0 --comm.transport tcp >predicted || exit 1
cat >look.py <<'PY'
import re, sys
unit = {"": 1, "KiB": 1024, "MiB": 1 << 20}
def size(s): n, u = re.fullmatch(r"(\d+)(|KiB|MiB)", s).groups(); return int(n) * unit[u]
text = open(sys.argv[1]).read()
head = re.search(r"^backward: (\S+) ms for (\d+) gradients of (\d+) bytes, \S+ ns/B; rest of a step: (\S+) ms$", text, re.M)
backward, gradients, total, rest = float(head[1]), int(head[2]), int(head[3]), float(head[4])
cost = re.search(r"^all_reduce: alpha (\S+) us, beta (\S+) ns/B, off by up to (\S+) % \(2 ranks over (\S+)\)$", text, re.M)
rows = [r.split() for r in text.splitlines() if re.match(r" +(\d\S*|unbounded) +\d+ ", r)]
caps = [r[0] for r in rows]
PY
claim 'the table is whole' python3 - table <<'PY'
exec(open("look.py").read())
widths = [64, 128, 128, 128, 128, 10]
assert gradients == 10 and total == 4 * sum(a * b + b for a, b in zip(widths, widths[1:])), (gradients, total)
assert float(cost[1]) >= 0 and float(cost[2]) >= 0 and cost[4] == "shm", cost
assert caps == ["1KiB", "4KiB", "16KiB", "40KiB", "64KiB", "unbounded"], caps
buckets = [int(r[1]) for r in rows]
# layers have 5160, 66048, 66048, 66048, 33280 bytes, the last layer first, of which all but 40 and 512 are the weights
assert buckets == [5, 5, 4, 4, 4, 1], buckets
for r in rows: # predicted: rest + backward + exposed, all rounded to a microsecond
    assert abs(float(r[2]) - (rest + backward + float(r[3]))) < 0.003, r
    assert float(r[4]) > 0 and float(r[5]) >= 0, r
one = rows[-1] # the last gradient ends backward: one bucket exposes alpha + beta S
assert abs(float(one[3]) - (float(cost[1]) / 1e3 + float(cost[2]) * total / 1e6)) < 0.002, (one, cost[0])
assert ["as" in r for r in rows] == [c == "40KiB" for c in caps], rows
PY
for f in table predicted; do
    claim "the recommended cap of $f has the shortest predicted step" python3 - $f <<'PY'
exec(open("look.py").read())
least = min(float(r[2]) for r in rows)
marked = [r for r in rows if r[-1] == "recommended"]
assert len(marked) == 1 and float(marked[0][2]) == least, rows
cap = re.findall(r"^recommended: ddp.bucket_cap: (\S+)$", text, re.M)
assert len(cap) == 1 and size(cap[0]) == (total if marked[0][0] == "unbounded" else size(marked[0][0])), (cap, marked)
PY
done
tune 2 --json --ddp.bucket_cap 40KiB --ddp.first_bucket 16KiB >tuned.json || exit 1
claim 'JSON says the same' python3 - <<'PY'
import json
x = json.load(open('tuned.json'))
assert (x['ranks'], x['transport'], x['gradients']) == (2, 'shm', 10), x
caps = x['caps']
assert [c['bucket_cap'] for c in caps[:-1]] == [1024, 4096, 16384, 40960, 65536] and caps[-1]['unbounded'], caps
assert [c['buckets'] for c in caps] == [5, 5, 4, 4, 4, 1], caps
assert [c['configured'] for c in caps] == [False] * 3 + [True] + [False] * 2, caps
for c in caps:
    assert c['predicted_ns'] > 0 and c['measured_ns'] > 0 and c['measured_exposed_ns'] >= 0, c
    assert abs(c['predicted_ns'] - (x['rest_ns'] + x['backward_ns'] + c['predicted_exposed_ns'])) < 1, c
best = min(caps, key=lambda c: c['predicted_ns'])
chosen = [c for c in caps if c['bucket_cap'] == x['recommended']['bucket_cap']] or caps[-1:]
assert chosen[0]['predicted_ns'] == best['predicted_ns'], x['recommended']
PY
tune 0 --json >tuned.json || exit 1
claim 'and has null for what was not measured' python3 -c 'import json
assert all(c["measured_ns"] is None and c["measured_exposed_ns"] is None for c in json.load(open("tuned.json"))["caps"])'
rm tuned.json
claim '--steps 0 measures no cap' python3 - predicted <<'PY'
exec(open("look.py").read())
assert rows and all(r[4] == r[5] == "-" for r in rows), rows
assert cost[4] == "tcp", cost
PY
claim 'and says no shortest measured step' test "$(grep -c 'shortest measured' predicted)" = 0
claim 'saves nothing' test -z "$(find . -mindepth 1 ! -name table ! -name predicted ! -name look.py)"
buckets() { # of a run, after the rebuild
    "$lockstep" train "$recipe" $deep -n 2 --train.steps 2 --run.dir "$1" --ddp.first_bucket "$2" --ddp.bucket_cap "$3" --dump-buckets |
        sed -n '/^buckets (rebuilt/,$p' | grep -c '^  bucket '
}
claim 'a run has as many buckets as predicted: 4 KiB' test "$(buckets a 4KiB 4KiB)" = 5
claim '64 KiB' test "$(buckets b 16KiB 64KiB)" = 4

# Where ranks divide layers or sequences, those that average gradients are measured; a cap that makes other buckets than were
# predicted ends the command.
small_text 60
lm=lm.yaml
cat >$lm <<YAML
model: { name: gpt2, n_layer: 2, n_head: 4, d_model: 32, seq_len: 16 }
data: { path: $tmp/tokens }
train: { global_batch: 4 }
ddp: { first_bucket: 4KiB, bucket_cap: 16KiB }
YAML
divided() { # ranks, ranks that average gradients, options
    OMP_NUM_THREADS=1 "$lockstep" tune buckets $lm -n "$1" --steps 1 "${@:3}" >divided || return 1
    grep -qF "($2 ranks over shm)" divided && grep -qE '^ +16KiB +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+' divided || { cat divided; return 1; }
}
claim 'tensor parallelism: two groups of two' divided 4 2 --parallel.tp 2
claim 'context parallelism: all four average' divided 4 4 --parallel.cp 2
claim 'sequence parallelism' divided 4 2 --parallel.tp 2 --parallel.sp true

wrong() { "$lockstep" tune "$@"; }
claim 'no subject' fails_with 64 'expected `lockstep tune buckets RECIPE`' wrong
claim 'another subject' fails_with 64 'expected `lockstep tune buckets RECIPE`' wrong rings "$recipe"
claim 'nothing but the subject' fails_with 64 'which run?' wrong buckets
claim 'no recipe' fails_with 64 'which run?' wrong buckets -n 2
claim 'a recipe that is not there' fails_with 74 'absent.yaml' wrong buckets absent.yaml -n 2
claim 'one rank' fails_with 64 'at least 2, because one rank reduces nothing' wrong buckets "$recipe"
claim 'negative steps' fails_with 64 'steps' wrong buckets --steps -1 "$recipe"
claim 'an unknown key' fails_with 64 'ddp.bucket_cop' wrong buckets "$recipe" -n 2 --ddp.bucket_cop 1
claim 'ZeRO' fails_with 78 'zero.stage is 1' wrong buckets "$recipe" -n 2 --zero.stage 1
claim 'a hook' fails_with 78 'ddp.hook is bf16' wrong buckets "$recipe" -n 2 --ddp.hook bf16
claim 'ranks that divide layers, and no others' fails_with 64 'tune buckets on 2 ranks with parallel.tp 2: expected a multiple of it' \
    wrong buckets "$lm" -n 2 --parallel.tp 2
claim 'ranks that divide experts' fails_with 78 'have buckets of all gradients, and parallel.ep is 2' wrong buckets "$lm" -n 2 --model.name moe \
    --parallel.ep 2
claim 'no overlap' fails_with 78 'ddp.overlap is false' wrong buckets "$recipe" -n 2 --ddp.overlap false
claim 'find_unused' fails_with 78 'ddp.find_unused is true' wrong buckets "$recipe" -n 2 --ddp.find_unused
claim 'a batch that 3 ranks cannot share' fails_with 78 'train.global_batch' wrong buckets "$recipe" -n 3 --train.global_batch 64
for flag in '--eval-only' '--print-config' '--dry-run' '--explain mfu' '--dump-buckets' '--inject nan@0:1' '--events e' '--log-dir l' '--ranks-as threads'; do
    claim "$flag belongs to train" fails_with 64 "${flag%% *} belongs to" wrong buckets "$recipe" -n 2 $flag
done
under() { # another launcher, with $1 ranks
    "$lockstep" run -n "$1" -- "$lockstep" tune buckets "$recipe" --steps 0 "${@:2}"
}
claim 'as many ranks as the launcher has started' under 2 -n 2
claim 'another number of them' fails_with 64 'the launcher has started 2 ranks' under 2 -n 3
once() { test "$(under 2 "$@" 2>&1 | grep -c '^lockstep tune: error')" = 1; }
claim 'ranks say it once' once -n 3
claim 'and an unknown key' once --ddp.bucket_cop 1
claim 'and what cannot be tuned' once --zero.stage 1
finish
