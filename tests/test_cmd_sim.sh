#!/bin/bash
# test_cmd_sim.sh -- `lockstep sim` as a user meets it: times that follow from closed forms, parts that sum to the step, the
# same bytes again, faults, the timeline, and refusals.
#
#   tests/test_cmd_sim.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >llama.yaml <<YAML
model: { name: llama, n_layer: 4, n_head: 4, d_model: 64, seq_len: 32, vocab_size: 258 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 16, micro_batch: 2 }
optim: { name: adamw }
YAML
cat >flat.yaml <<YAML
name: flat
device: { name: box, peak: 2 TFLOP/s }
links: [{ name: wire, bandwidth: 1 GB/s, direction: one, latency: 10 us }]
levels: [{ name: all, of: device, count: 8, link: wire }]
YAML
sim() { timeout -k 5 120 "$lockstep" sim llama.yaml --topology flat.yaml "$@"; }
holds() { # a condition on j, and options
    local what=$1
    shift
    sim --json "$@" >sim.json 2>err || { cat err; return 1; }
    python3 -c "
import json
j = json.load(open('sim.json'))
def near(a, b, e=1e-9): return abs(a - b) <= e * abs(b)
def parts(s): return sum(s[k] for k in ('compute_s', 'collectives_s', 'others_s', 'beside_s', 'stages_s', 'idle_s'))
assert $what, j"
}

# --- one rank: operations alone
claim 'one rank computes, and nothing else' holds 'near(j["step_s"], j["stages"][0]["compute_s"]) and j["collectives"] == [] and j["bubble"] == 0' -n 1
claim 'twice the rate is half the step' bash -c "
'$lockstep' sim llama.yaml -t flat.yaml -n 1 --json --tflops 1 >a.json && '$lockstep' sim llama.yaml -t flat.yaml -n 1 --json --tflops 2 >b.json &&
python3 -c 'import json; a, b = (json.load(open(f))[\"step_s\"] for f in (\"a.json\", \"b.json\")); assert abs(a - 2 * b) < 1e-12 * a'"
claim 'its operations are about those that MFU counts' holds '.8 < j["mfu"] / .5 < 1.05' -n 1
# (the optimizer updates a quarter of the experts there: less than a twentieth of the step)
claim 'experts on four ranks compute as much as all on each, with an even load' bash -c "
for p in ep dp; do '$lockstep' sim llama.yaml -t flat.yaml -n 4 --json --model.name moe --model.n_experts 8 --model.d_expert 64 --parallel.\$p 4 >\$p.json; done &&
python3 -c 'import json; a, b = (json.load(open(f))[\"stages\"][0][\"compute_s\"] for f in (\"ep.json\", \"dp.json\")); assert .95 * b < a <= b, (a, b)'"
claim 'micro-batches compute alike' bash -c "
'$lockstep' sim llama.yaml -t flat.yaml -n 1 --json >a.json && '$lockstep' sim llama.yaml -t flat.yaml -n 1 --json --train.micro_batch 16 >b.json &&
python3 -c 'import json; a, b = (json.load(open(f))[\"step_s\"] for f in (\"a.json\", \"b.json\")); assert abs(a - b) < 1e-9 * a'"

# --- collectives have their closed forms
for ranks in 2 4 8; do
    claim "rings of $ranks take 2 (n-1) (alpha + S / (n beta))" holds "all(near(c['seconds'], 2 * ($ranks - 1) * (1e-5 + c['bytes'] / $ranks / 1e9), 1e-3)
        for c in j['collectives'] if c['coll'] == 'all_reduce' and c['bytes'] > 1e4) and len(j['collectives']) > 1" -n $ranks --comm.algo all_reduce=ring
done
claim 'the fastest algorithm is no slower than a ring' bash -c "
'$lockstep' sim llama.yaml -t flat.yaml --json >a.json && '$lockstep' sim llama.yaml -t flat.yaml --json --comm.algo all_reduce=ring >b.json && python3 -c '
import json
a, b = (json.load(open(f)) for f in (\"a.json\", \"b.json\"))
assert all(x[\"seconds\"] <= y[\"seconds\"] for x, y in zip(a[\"collectives\"], b[\"collectives\"])) and a[\"step_s\"] <= b[\"step_s\"]'"
claim 'the parts of each stage sum to the step' holds 'all(near(parts(s), j["step_s"]) for s in j["stages"]) and len(j["stages"]) == 2' --parallel.pp 2 --parallel.tp 2
claim 'FSDP gathers and scatters' holds '{"all_gather", "reduce_scatter"} <= {c["coll"] for c in j["collectives"]}' --zero.stage 3 --zero.copy rank
shared() { # topology, condition on the all_gathers of weights
    LOCKSTEP_CPUS=2 "$lockstep" sim llama.yaml -t "$1" -n 2 --json --tflops 1 --zero.stage 3 >sim.json 2>err || { cat err; return 1; }
    python3 -c "
import json
big = [c for c in json.load(open('sim.json'))['collectives'] if c['coll'] == 'all_gather' and c['bytes'] > 4096]
assert $2, big"
}
claim 'devices of a cluster gather weights' shared flat.yaml 'len(big) > 0'
claim 'ranks of this machine read one copy of them' shared local 'len(big) == 0'
claim 'nor does a prediction of this machine gather them' bash -c "
'$lockstep' sim llama.yaml -n 2 --json --zero.stage 3 >sim.json 2>err && python3 -c '
import json
assert not [c for c in json.load(open(\"sim.json\"))[\"collectives\"] if c[\"coll\"] == \"all_gather\" and c[\"bytes\"] > 4096]'"
claim 'sums of buckets hide behind the backward' holds 'j["exposed_s"] < j["beside_s"]' --tflops 0.01 --ddp.bucket_cap 100K
claim 'the last ones are waited for' holds 'j["stages"][0]["beside_s"] > 0 and near(j["exposed_s"], sum(j["stages"][0][k] for k in ("collectives_s", "beside_s")))'
claim 'without overlap nothing does' holds 'j["beside_s"] == 0' --tflops 0.01 --ddp.bucket_cap 100K --ddp.overlap false

# --- pipelines: the bubble of stages that take equal times is (p - 1) / (m + p - 1)
claim 'a bubble as in the books' holds 'abs(j["bubble"] - 3 / 11) < .06' -n 4 --parallel.pp 4 --tflops 1e-4 --model.n_layer 16 --model.vocab_size 258
claim 'more micro-batches, less of it' holds 'j["bubble"] < .15' -n 4 --parallel.pp 4 --tflops 1e-4 --model.n_layer 16 --train.global_batch 64
# Attention and mlp send as much, and compute less the more ranks divide them: a cut that ends inside layers is taken where it is
# shorter with collectives, too. The reference is whole layers by hand.
step_of() { "$lockstep" sim "$source_dir/recipes/plans/llama-7b.yaml" -t h100-8 --parallel.pp 4 --train.global_batch 128 --json "$@" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["step_s"])'; }
no_slower() { awk -v a="$(step_of "$@")" -v b="$(step_of "$@" --pipeline.split "$whole")" -v by="$by" 'BEGIN { exit !(a > 0 && a <= b * by) }'; }
for schedule in 1f1b zb-h1 zb-h2; do
    by=1 whole=8,8,8,8 claim "llama-7b, tp 8, $schedule: its cut is not slower than 8 layers each" no_slower --parallel.tp 8 --pipeline.schedule $schedule
done
by=.99 whole=4,4,4,4,4,4,4,4 claim 'with tp 2 halves in a V are taken, and are faster' no_slower --parallel.tp 2 --pipeline.schedule zb-v
# So with the keys of context parallelism, which attention alone exchanges, and with the tokens of experts, which the mlp does.
by=1 whole=4,4,4,4,4,4,4,4 claim 'with cp 8 in a V the cut is not slower than whole layers' no_slower --parallel.cp 8 --pipeline.schedule zb-v
by=.99 whole=8,8,8,8 claim 'with cp 4 halves are taken, and are faster' no_slower --parallel.cp 4
experts=(--train.global_batch 64 --pipeline.schedule zb-h1 --model.name moe --model.n_experts 8 --model.top_k 4 --parallel.ep 8)
by=.97 whole=2,2,2,0 claim 'with ep 8, too' no_slower "${experts[@]}" --model.d_ff 2048 --model.n_layer 6
by=1 whole=2,5 claim 'with smaller experts the cut is not slower than whole layers' no_slower "${experts[@]}" --model.d_ff 1024 --model.n_layer 7 --parallel.pp 2
claim 'every schedule runs' bash -c "for s in gpipe 1f1b interleaved zb-h1 zb-h2 zb-v dualpipe-v; do '$lockstep' sim llama.yaml -t flat.yaml -n 2 --parallel.pp 2 --model.n_layer 8 --pipeline.schedule \$s >out || exit 1; done"

# --- the order of the axes, on two nodes that Ethernet joins: which links calls cross, as `topo place` has it for the same order
ordered() { timeout -k 5 120 "$lockstep" sim llama.yaml -t ethernet-2 --json --parallel.tp 2 --parallel.pp 2 "$@"; }
ordered >usual.json && ordered --parallel.order pp-dp-ep-cp-tp >named.json
claim 'the usual order, named: the same bytes' cmp usual.json named.json
for order in tp-pp-dp pp-tp-dp dp-tp-pp; do
    ordered --parallel.order $order >order.json
    timeout -k 5 120 "$lockstep" topo place llama.yaml -t ethernet-2 --json --parallel.tp 2 --parallel.pp 2 --order $order >place.json
    claim "order $order: each collective crosses the links of topo place" python3 -c '
import json
sim, place = json.load(open("order.json")), json.load(open("place.json"))
link = {(x["ranks"], x["collective"]): x["link"] for x in place["judged"]["rows"]}
assert sim["order"] == "'$order'" and len(sim["collectives"]) > 4
for x in sim["collectives"]: assert link[x["axes"], x["coll"]] == x["link"], x'
    claim "order $order: bytes and calls of the usual order" python3 -c '
import json
a, b = (sorted((x["coll"], x["axes"], x["bytes"], x["calls"]) for x in json.load(open(f))["collectives"]) for f in ("usual.json", "order.json"))
assert a == b'
done
claim 'tp between nodes is slower' python3 -c '
import json
usual = json.load(open("usual.json"))
import subprocess
slow = json.loads(subprocess.run(["'"$lockstep"'", "sim", "llama.yaml", "-t", "ethernet-2", "--json", "--parallel.tp", "2", "--parallel.pp", "2", "--parallel.order", "tp-pp-dp"], capture_output=True, text=True).stdout)
took = lambda j: max(x["seconds"] for x in j["collectives"] if x["axes"] == "tp" and x["bytes"] > 1e4)
assert slow["step_s"] > 1.2 * usual["step_s"] and took(slow) > 20 * took(usual), (slow["step_s"], usual["step_s"])'
ordered --parallel.placement auto >auto.json
claim 'placement auto: the order that topo place finds best' python3 -c '
import json
auto, place = json.load(open("auto.json")), json.load(open("place.json"))
assert auto["order"] == place["best"]["order"], (auto["order"], place["best"])'
claim 'which is not chosen where an order is given' fails_with 78 'parallel.placement auto chooses the order of the axes, and parallel.order' ordered --parallel.placement auto --parallel.order tp-dp

# --- groups that are parts of an axis: sets of shards, and heads exchanged among neighbours
claim 'two sets of shards: gradients are scattered within each, and summed across' holds '{(c["coll"], c["axes"]) for c in j["collectives"]} >= {
    ("reduce_scatter", "dp parts"), ("all_reduce", "dp across"), ("all_gather", "dp parts")}' --zero.stage 2 --zero.hsdp 2
claim 'rings of a part take 2 (n-1) (alpha + S / (n beta)) of its 2 ranks' holds 'all(near(c["seconds"], 2 * (1e-5 + c["bytes"] / 2 / 1e9), 1e-3) for c in j["collectives"] if c["axes"] == "dp across" and c["bytes"] > 1e4)' --zero.stage 2 --zero.hsdp 2 --comm.algo all_reduce=ring
two_nodes() { timeout -k 5 120 "$lockstep" sim llama.yaml -t ethernet-2 --json --zero.stage 2 --zero.hsdp 2 >sim.json; }
two_nodes
claim 'a set per node: shards stay in it' python3 -c '
import json
j = json.load(open("sim.json"))
assert {c["link"] for c in j["collectives"] if c["axes"] == "dp parts"} == {"PCIe 4.0 x16"} and {c["link"] for c in j["collectives"] if c["axes"] == "dp across"} == {"Ethernet"}'
claim 'heads exchanged among two neighbours of four, rings across' holds '{("all_to_all", "cp parts"), ("sendrecv", "cp across")} <= {(c["coll"], c["axes"]) for c in j["collectives"]}' --parallel.cp 4 --parallel.context ulysses-ring

# --- the same again
sim --json --jitter 0.05 --jitter-seed 7 >a.json
OMP_NUM_THREADS=1 sim --json --jitter 0.05 --jitter-seed 7 >b.json
OMP_NUM_THREADS=2 sim --json --jitter 0.05 --jitter-seed 7 >c.json
sim --json --jitter 0.05 --jitter-seed 8 >d.json
claim 'the same seed gives the same bytes, with 1 and with 2 threads' bash -c 'cmp a.json b.json && cmp a.json c.json'
claim 'another seed gives others' bash -c '! cmp -s a.json d.json'

# --- faults
sim --json --tflops 0.01 >plain.json
claim 'all wait for a straggler' holds 'j["step_s"] > 1.6 * json.load(open("plain.json"))["step_s"] and j["stages"][0]["others_s"] + j["stages"][0]["beside_s"] > .3 * j["step_s"]' --tflops 0.01 --slow 3:2
claim 'and for a link that fails' holds 'j["step_s"] > json.load(open("plain.json"))["step_s"]' --tflops 0.01 -n 2 --parallel.pp 2 --fail all:0@0-50

# --- the timeline
sim --parallel.pp 2 --timeline step.json --timeline-ranks 4 >sim.txt
claim 'the timeline is a trace of the runtime' python3 -c '
import json
t = json.load(open("step.json"))
e = t["traceEvents"]
assert {x["pid"] for x in e} == {0, 2, 4, 6}
names = {x["name"] for x in e if x["ph"] == "X"}
assert {"optimizer", "send 0-1"} <= names, names
cats = {x.get("cat") for x in e}
assert {"forward", "backward", "comm", "wait", "optim"} <= cats, cats'
claim 'a run with trace.steps has the same categories' bash -c "
'$lockstep' train llama.yaml --nproc-per-node 2 --parallel.pp 2 --trace.steps 3 --run.dir run >out 2>err && python3 -c '
import glob, json
def cats(f): return {x.get(\"cat\") for x in json.load(open(f))[\"traceEvents\"]} - {None}
assert cats(\"step.json\") <= cats(glob.glob(\"run/trace/*\")[0]) | {\"wait\"}'"

# --- refusals
claim 'no cluster: this machine' bash -c "'$lockstep' sim llama.yaml -n 2 | grep -q '^this machine: 2 ranks (dp 2), one on each device'"
claim 'a seed without jitter' fails_with 64 '--jitter-seed draws nothing without --jitter' sim --jitter-seed 3
claim 'ranks of no timeline' fails_with 64 '--timeline-ranks needs --timeline FILE' sim --timeline-ranks 3
claim 'too many ranks' fails_with 78 '9 ranks do not fit on flat: it has 8 devices' sim -n 9
claim 'a mesh that does not fit' fails_with 78 'parallel' sim --parallel.tp 3
claim 'a straggler that is no pair' fails_with 64 "'3' is not RANK:FACTOR, as in 3:1.5" sim --slow 3
claim 'a straggler that is not there' fails_with 78 'rank 9 takes 2 times as long: expected a rank from 0 to 7' sim --slow 9:2
claim 'a failure of no level' fails_with 64 "flat has no level 'node'; its highest is all" sim --fail node:0@1-2
claim 'a failure that is none' fails_with 64 'is not LEVEL:UNIT@FROM-UNTIL in ms' sim --fail all:0
claim 'a straggler twice' fails_with 64 '--slow 1:2,1:3: rank 1 is there twice' sim --slow 1:2,1:3
on_nodes() { timeout -k 5 120 "$lockstep" sim llama.yaml --topology h100-8 "$@"; }
claim 'a failure of links that no stage uses' fails_with 64 '--fail node:0: no message between stages uses these links' on_nodes --parallel.pp 2 --parallel.dp 8 --fail node:0@0-1
claim 'nor those of a node that has one stage' fails_with 64 '--fail cluster:0: no message between stages uses these links' on_nodes --parallel.pp 4 --parallel.dp 1 --fail cluster:0@0-1
claim 'nor those of a node without ranks' fails_with 64 '--fail cluster:3: no message between stages uses these links' on_nodes --parallel.pp 2 --parallel.dp 8 --fail cluster:3@0-1
claim 'others do' has_line 'step ' on_nodes --parallel.pp 2 --parallel.dp 8 --fail cluster:1@0-1
claim 'a failure of no unit' fails_with 78 'a failure of unit 8 of level 0' sim --parallel.pp 4 --fail all:8@0-1
claim 'a flag of training' fails_with 64 'belongs to `lockstep train`' sim --dry-run
sed 's/peak: 2 TFLOP/peak: 0 TFLOP/' flat.yaml >zero.yaml
claim 'a cluster with a fault has its line' fails_with 65 'zero.yaml:2: peak:' "$lockstep" sim llama.yaml -t zero.yaml
sed 's/, peak: 2 TFLOP\/s//' flat.yaml >unknown.yaml
claim 'devices of unknown speed' fails_with 64 'flat does not state the peak of its devices: --tflops' "$lockstep" sim llama.yaml -t unknown.yaml
sed 's/n_layer: 4/n_layer: four/' llama.yaml >wrong.yaml
claim 'a recipe with a fault has its line' fails_with 78 'wrong.yaml:1' "$lockstep" sim wrong.yaml -t flat.yaml
finish
