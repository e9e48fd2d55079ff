#!/bin/bash
# test_explain_roofline.sh -- `lockstep explain roofline` (R170): FLOPs, bytes and times of each phase beside closed forms, jobs that are
# built to be bound by compute, memory and communication, layouts whose verdict changes with the link, and what a run attained.
#
#   tests/test_explain_roofline.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export LOCKSTEP_CALIBRATION=none
cluster() { # file, bandwidth
    cat >"$1" <<YAML
name: pair
device: { name: box, peak: 1 TFLOP/s, memory: 8 GB }
links: [{ name: wire, bandwidth: $2, direction: one, latency: 10 us }]
levels: [{ name: node, of: device, count: 4, link: wire }]
YAML
}
cluster slow.yaml '1 GB/s'
cluster fast.yaml '100 GB/s'
printf 'model: { dims: [1024, 2048, 16] }\ndata: { name: synthetic }\ntrain: { global_batch: 512 }\noptim: { name: adamw }\n' >mlp.yaml
explain() { timeout -k 5 120 "$lockstep" explain roofline "$@"; }
roofline() { explain "$@" --memory-rate 100 --json >got.json; }
# N samples of a rank, P parameters; the peak is 1 TFLOP/s and memory moves 100 GB/s
is() { python3 -c "
import json, math
j = json.load(open('got.json'))
phase = {p['phase']: p for p in j['phases']}
op = {(o['op'], o['phase']): o for o in j['operations']}
def near(a, b, to=1e-9): return abs(a - b) <= to * abs(b)
A, B, C, P = 1024, 2048, 16, 1024 * 2048 + 2048 + 2048 * 16 + 16
assert $1, (j['bound'], j['part_s'], j['step_s'], j['phases'])"; }

# --- closed forms, one rank: operands and results once each, forward 2 N I O FLOPs, backward twice that where inputs want a gradient
roofline mlp.yaml -n 1 -t fast.yaml
N='N := 512'
claim 'a product forward' is "[o := op['linear 1024x2048', 'forward'], $N] and o['flops'] == 2 * N * A * B and o['bytes'] == 4 * (N * A + A * B + B + N * B)"
claim 'its intensity' is "near(op['linear 1024x2048', 'forward']['intensity'], 2 * 512 * A * B / (4 * (512 * A + A * B + B + 512 * B)))"
claim 'it is bound by compute' is "[o := op['linear 1024x2048', 'forward']] and o['bound'] == 'compute' and near(o['compute_s'], o['flops'] / 1e12) and o['memory_s'] == 0"
claim 'backward of the first one has weights alone' is "op['linear 1024x2048', 'backward']['flops'] == 2 * 512 * A * B"
claim 'backward of the second one has both' is "op['linear 2048x16', 'backward']['flops'] == 4 * 512 * B * C"
claim 'an activation is bound by memory' is "[o := op['relu %d' % (512 * B), 'forward']] and o['bytes'] == 8 * 512 * B and o['bound'] == 'memory' and near(o['memory_s'], o['bytes'] / 1e11)"
claim 'adamw reads and writes 28 bytes per parameter' is "near(phase['update']['bytes'], 28 * P, 1e-3)"
# m: 2 products and a sum; v: 3 and a sum; sqrt, /, + eps; the step times m, /, -; gradient times scale; weight times (1 - lr decay)
claim 'adamw computes 15 operations per parameter' is "phase['update']['flops'] == 15 * P and near(op['optimizer', 'update']['intensity'], 15 / 28, 1e-3)"
roofline mlp.yaml -n 1 -t fast.yaml --tflops 1e-4
claim 'with a slow device that bounds it' is "phase['update']['bound'] == 'compute' and near(phase['update']['part_s']['compute'], 15 * P / 1e8)"
roofline mlp.yaml -n 1 -t fast.yaml --optim.name adam
claim 'adam as many' is "phase['update']['flops'] == 15 * P"
roofline mlp.yaml -n 1 -t fast.yaml --optim.name adam --optim.weight_decay 0.1
claim 'and 2 with decay' is "phase['update']['flops'] == 17 * P"
roofline mlp.yaml -n 2 -t fast.yaml --zero.stage 1
claim 'two ranks update half each' is "near(phase['update']['flops'], 7.5 * P, 1e-3)"
roofline mlp.yaml -n 1 -t fast.yaml --optim.name sgd
claim 'sgd 12' is "phase['update']['bytes'] == 12 * P"
claim 'sgd scales, multiplies and subtracts' is "phase['update']['flops'] == 3 * P"
roofline mlp.yaml -n 1 -t fast.yaml --optim.name sgd --optim.weight_decay 0.1 --optim.decay matrices
claim 'decay of matrices alone' is "phase['update']['flops'] == 3 * P + 2 * (A * B + B * C)"
roofline mlp.yaml -n 1 -t fast.yaml --optim.name sgd --optim.momentum 0.9
claim 'with momentum 20' is "near(phase['update']['bytes'], 20 * P, 1e-3)"
claim 'and 2 operations more' is "phase['update']['flops'] == 5 * P"
roofline mlp.yaml -n 1 -t fast.yaml
claim 'one rank sends nothing' is "phase['step']['sent'] == 0 and j['part_s']['communication'] == 0"
claim 'the ridge' is "j['peaks']['ridge'] == 10"
claim 'operations sum to phases' is "all(near(sum(o[k] for o in j['operations'] if o['phase'] == p), phase[p][k]) for p in ('forward', 'backward') for k in ('flops', 'bytes'))"
claim 'phases sum to the step' is "all(near(sum(phase[p][k] for p in ('forward', 'backward', 'update')), phase['step'][k]) for k in ('flops', 'bytes'))"
claim 'operations take the step' is "near(sum(o['compute_s'] + o['memory_s'] for o in j['operations']), j['step_s'])"
explain mlp.yaml -n 1 -t fast.yaml --memory-rate 100 >out
claim 'people read the verdict' prints '^limited by compute$'
claim 'and the ridge' prints 'ridge at 10 FLOP per byte$'

roofline mlp.yaml -n 2 -t slow.yaml
claim 'two ranks: each has half of the samples' is "op['linear 1024x2048', 'forward']['flops'] == 2 * 256 * A * B"
claim 'two ranks: an all_reduce of all gradients' is "near(phase['backward']['sent'], 4 * P, 1e-4) and near(phase['backward']['least_s']['communication'], 4 * P / 1e9 + 1e-5, 1e-4)"
claim 'two ranks: parts and the step' is "near(sum(j['part_s'].values()) + j['bubble_s'], j['step_s'])"
roofline mlp.yaml -n 4 -t slow.yaml
claim 'four ranks: each sends 2 (W-1)/W of the vector' is "near(phase['backward']['sent'], 1.5 * 4 * P, 1e-4)"
roofline mlp.yaml -n 2 -t slow.yaml --train.micro_batch 64
claim 'micro-batches: the same FLOPs' is "phase['forward']['flops'] == 256 * (2 * A * B + 2 * B * C + B) + 4 * (64 * 16 * 15) and op['linear 1024x2048', 'forward']['calls'] == 4"
claim 'micro-batches: gradients are sent once' is "near(phase['backward']['sent'], 4 * P, 1e-4)"

# --- weights of ZeRO-3: two ranks of this machine read one copy, those of a cluster gather the new ones after the update
roofline mlp.yaml -n 2 -t fast.yaml --zero.stage 3
claim 'devices of a cluster reduce gradients and gather weights' is "near(phase['backward']['sent'], 2 * 4 * P / 2, .01)"
LOCKSTEP_CPUS=2 roofline mlp.yaml -n 2 -t local --tflops 1 --zero.stage 3
claim 'ranks of this machine reduce gradients alone' is "near(phase['backward']['sent'], 4 * P / 2, .01) and phase['update']['sent'] < 1000"
claim 'and so they do with products twice as fast' is "near(j['step_if_twice_as_fast_s']['compute'], j['step_s'] - j['part_s']['compute'] / 2, 1e-6)"

# --- jobs that are built to be each kind; the verdict is also what helps most if it is twice as fast
verdict() { # what, arguments...
    local what=$1
    shift
    roofline "$@"
    claim "$*: bound by $what" is "j['bound'] == '$what'"
    claim "$*: which helps most" is "min(j['step_if_twice_as_fast_s'], key=j['step_if_twice_as_fast_s'].get) == '$what'"
    claim "$*: parts and the step" is "near(sum(j['part_s'].values()) + j['bubble_s'], j['step_s'])"
    claim "$*: no bubble without stages" is "j['bubble_s'] >= 0 and (j['stages'] > 1 or abs(j['bubble_s']) < 1e-12)"
}
gpt=(--model.name gpt2 --model.n_layer 2 --model.n_head 4 --model.d_model 256 --model.seq_len 128 --model.vocab_size 512)
gpt+=(--optim.name adamw)
printf 'train: { global_batch: 8 }\n' >gpt.yaml
verdict compute mlp.yaml -n 1 -t fast.yaml --train.global_batch 4096
verdict memory mlp.yaml -n 1 -t fast.yaml --train.global_batch 2
verdict communication mlp.yaml -n 4 -t slow.yaml --train.global_batch 64
verdict compute gpt.yaml "${gpt[@]}" -n 1 -t fast.yaml --tflops 0.2
verdict memory gpt.yaml "${gpt[@]}" -n 1 -t fast.yaml --tflops 100
verdict communication gpt.yaml "${gpt[@]}" -n 2 -t slow.yaml --parallel.tp 2
# one layout, two links
verdict compute mlp.yaml -n 2 -t fast.yaml
verdict communication mlp.yaml -n 2 -t slow.yaml
# values that are gathered beside nothing, after the last operation
verdict communication gpt.yaml "${gpt[@]}" -n 4 -t slow.yaml --zero.stage 2 --tflops 100
# pipeline stages: the bubble is in no part
verdict compute gpt.yaml "${gpt[@]}" -n 2 -t slow.yaml --parallel.pp 2 --train.micro_batch 1
claim 'a pipeline waits' is "j['stages'] == 2 and j['bubble_s'] > 0 and phase['forward']['sent'] + phase['backward']['sent'] > 0"

# --- a run
timeout -k 5 60 "$lockstep" train mlp.yaml --nproc-per-node 2 --train.steps 12 --train.epochs 0 --run.dir run >out 2>err || cat err
roofline run --tflops 1
claim 'a run: the mean of its steady steps' is "[steps := [json.loads(l) for l in open('run/metrics.jsonl')],
    steps := [s for s in steps if 'eval/loss' not in s], bytes := [s['comm/bytes'] for s in steps], usual := max(bytes, key=bytes.count),
    seconds := [s['time_metrics/end_to_end(s)'] for s in steps if s.get('comm/bytes') == usual]] and near(j['measured']['step_s'], sum(seconds) / len(seconds))"
claim 'a run: attained' is "near(j['measured']['flops_per_s'], phase['step']['flops'] / j['measured']['step_s']) and j['ranks'] == 2"
explain run --tflops 1 --memory-rate 100 >out
claim 'a run: in words' prints '^attained: [0-9.]+ [GM]FLOP/s \([0-9.]+ % of the peak\), memory [0-9.]+ [GM]B/s'
claim 'a run without a trace: no times of operations' is "all(o['measured_s'] is None for o in j['operations'])"
timeout -k 5 60 "$lockstep" train mlp.yaml --nproc-per-node 2 --train.steps 4 --train.epochs 0 --train.micro_batch 64 --trace.steps 2:3 --run.dir traced >out 2>err || cat err
roofline traced --tflops 1
claim 'a trace: the mean of each operation, as often as a step calls it' is "[slices := [e for e in json.load(open('traced/trace/trace.json'))['traceEvents'] if e['ph'] == 'X' and e['pid'] == 0],
    took := lambda name, cat: [e['dur'] for e in slices if (e['name'], e['cat']) == (name, cat)],
    mean := lambda v: sum(v) / len(v)] and all(near(op[n, p]['measured_s'], calls * mean(took(n, p)) * 1e-6) for n, p, calls in (
    ('linear 1024x2048', 'forward', 4), ('linear 1024x2048', 'backward', 4), ('linear 2048x16', 'forward', 4), ('linear 2048x16', 'backward', 8))
    ) and near(op['optimizer', 'update']['measured_s'], mean(took('optimizer step', 'optim')) * 1e-6)"
explain traced --tflops 1 --memory-rate 100 >out
claim 'a trace: in words' prints '^linear 1024x2048 +forward +4 .* compute, attained [0-9.]+ %$'
echo '{' >traced/trace/trace.json
claim 'a trace that is none' fails_with 65 'traced/trace/trace.json:2: ' explain traced --tflops 1 --memory-rate 100
rm traced/trace/trace.json
sed -i 's/"nodes": \[0, 0\]/"nodes": [0, 1]/' traced/comm.json
claim 'a run of two nodes names its cluster' fails_with 64 'traced was on several nodes, and local is one: --topology says' explain traced --tflops 1 --memory-rate 100
claim 'and then has its links' has_line 'pair, 2 ranks' explain traced --tflops 1 --memory-rate 100 -t slow.yaml
explain mlp.yaml -n 1 >out
claim 'this machine is measured' prints 'GFLOP/s per thread in f32 .*memory: measured now, shared by all ranks'

# --- the peak of this machine's products, of the type of the run
cat >peak.json <<JSON
{ "lockstep_peak": 1, "host": "$(uname -n)", "peaks": [ { "dtype": "float", "threads": 1, "gflops_per_thread": 100 },
    { "dtype": "bfloat16", "threads": 1, "gflops_per_thread": 400 } ] }
JSON
here() { OMP_NUM_THREADS=1 LOCKSTEP_PEAK=$PWD/peak.json explain gpt.yaml "${gpt[@]}" -n "$(nproc)" --memory-rate 1000 --json "$@" >got.json; }
here
claim 'f32' is "j['peaks']['flops_per_s'] == 1e11 and 'f32 products' in j['peaks']['from']"
here --train.dtype bf16
claim 'bf16' is "j['peaks']['flops_per_s'] == 4e11 and 'bf16 products' in j['peaks']['from'] and near(op['linear 256x768', 'forward']['compute_s'], op['linear 256x768', 'forward']['flops'] / 4e11)"

# --- refusals
claim 'no configuration' fails_with 64 'expected a configuration or a run' explain
claim 'a flag of roofline elsewhere' fails_with 64 '--topology belongs to `lockstep explain roofline`' "$lockstep" explain mlp.yaml -n 2 -t slow.yaml
claim 'a flag of others here' fails_with 64 '--rank belongs to' explain mlp.yaml -n 1 -t slow.yaml --rank 0
claim 'memory that no data sheet has' fails_with 64 'the memory rate of box is not known: --memory-rate says it' explain mlp.yaml -n 1 -t slow.yaml
claim 'more ranks than devices' fails_with 78 '8 ranks do not fit on pair: it has 4 devices' explain mlp.yaml -n 8 -t slow.yaml --memory-rate 1
claim 'several numbers of ranks' fails_with 64 '--ranks: expected one number, found 2' explain mlp.yaml -n 1,2 -t slow.yaml
claim 'no such cluster' fails_with 74 'no cluster of that name' explain mlp.yaml -n 1 -t slowest
finish
