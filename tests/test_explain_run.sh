#!/bin/bash
# test_explain_run.sh -- `lockstep explain RUN`: what is replicated and sharded, what is on the critical path, and why the
# optimizer's semantics hold; its bytes are the run's own counters, or the command refuses.
#
#   tests/test_explain_run.sh BUILD
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read JSON'; exit 1; }
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: mlp, dims: [64, 128, 60, 10] }
data: { name: synthetic }
train: { steps: 8, global_batch: 32, eval_every: 4 }
optim: { name: adam, clip: 1 }
YAML
cat >gpt2.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 6, global_batch: 8, micro_batch: 1, dtype: bf16, eval_every: 6, eval_batches: 1 }
YAML
explain() {
    timeout -k 5 60 "$lockstep" explain "$@" >out 2>err
    code=$?
}
run() { # recipe, ranks, flags...
    local recipe=$1 ranks=$2
    shift 2
    rm -rf run
    timeout -k 5 60 "$lockstep" train "$recipe.yaml" -n "$ranks" --run.dir run "$@" >train.out 2>&1 || { cat train.out; return 1; }
}

# --- bytes are the run's, in every layout
same_bytes() { # recipe, ranks, stage, flags...
    local recipe=$1 ranks=$2 stage=$3
    shift 3
    run "$recipe" "$ranks" --zero.stage "$stage" "$@" || return
    explain run --json
    ends_with 0 && python3 - "$ranks" "$stage" $(grep -o hsdp <<<"$*") <<'PY'
import json, sys
ranks, stage = int(sys.argv[1]), int(sys.argv[2])
x = json.load(open('out'))
lines = [json.loads(l) for l in open('run/metrics.jsonl')]
plain = [l['comm/bytes'] for l in lines if 'eval/loss' not in l]
b = x['bytes']
assert (x['world_size'], x['stage'], x['run']) == (ranks, stage, 'run') and x['memory_compared'], x
assert b['counted'] == b['total'] == b['formula'] + b['padding'] + b['others'] == plain[-1], (b, plain)
assert b['steady_steps'] == plain.count(plain[-1]) and b['steps'] == len(plain), (b, plain)
assert b['formula'] == sum(c['formula'] for c in x['critical_path'])
assert b['formula'] + b['padding'] == sum(c['bytes'] for c in x['critical_path'])
memory = json.load(open('run/memory.json'))
state = {s['what']: s for s in x['state']}
assert state['optimizer state']['bytes'] == memory['optim']['peak']
want = {'parameters': stage == 3, 'gradients': stage >= 2, 'optimizer state': stage >= 1}
for what, sharded in want.items():
    where = state[what]['where']
    assert where == ('whole' if ranks == 1 else 'sharded' if sharded else 'replicated') or \
        (where, what) == ('sharded in part', 'parameters'), (what, where)
colls = [c['coll'] for c in x['critical_path']]
want = ['reduce_scatter'] if stage == 3 and x['copy'] == 'host' else ['reduce_scatter', 'all_gather']
want = [] if ranks == 1 else ['all_reduce'] if stage == 0 else want
assert colls == want or (colls and 'hsdp' in sys.argv[3:]), colls
P = x['parameters']
if stage == 0: # all_reduce by a ring: 2 (W-1)/W of the gradients
    assert b['formula'] == 2 * 4 * P * (ranks - 1) // ranks, b
PY
}
claim 'one rank moves nothing' same_bytes base 1 0
for ranks in 2 4; do
    claim "DDP on $ranks ranks" same_bytes base $ranks 0
    claim "stage 1 on $ranks ranks" same_bytes base $ranks 1
    claim "stage 2 on $ranks ranks" same_bytes base $ranks 2
    claim "stage 3 on $ranks ranks, one copy per node" same_bytes base $ranks 3
    claim "stage 3 on $ranks ranks, gathered by each" same_bytes base $ranks 3 --zero.copy rank
done
claim 'over connections, in small buckets' same_bytes base 3 0 --train.global_batch 30 --comm.transport tcp --ddp.bucket_cap 4KiB
claim 'a language model in bf16 with micro-batches' same_bytes gpt2 2 2
claim 'and gathered' same_bytes gpt2 2 3 --zero.copy rank --zero.reshard always
claim 'with two sets of shards' same_bytes gpt2 4 1 --zero.hsdp 2

# --- what people read
run base 2 && explain run
claim 'it ends with 0' ends_with 0
claim 'it says what the run is' prints '^run: mlp, f32, adam: 16670 parameters, 2 ranks, zero.stage 0$'
claim 'what is replicated' prints '^  optimizer state +replicated +[0-9]+  8 P$'
claim 'what is sharded' prints '^  samples +sharded +16 of 32 per rank and step$'
claim 'what is on the critical path' prints '^  all_reduce +gradients +66680  \(W-1\)/W of 2 \(4 P\), in backward, bucket by bucket: the last bucket is exposed$'
claim 'and what the run counted' prints '^  counted by the run +[0-9]+  in 6 of 6 steps'
claim 'why the optimizer is right' prints 'every rank makes the same update of all weights from the same bits'
claim 'clipping, too' prints 'the norm for clipping is of all ranks'
claim 'and who looks' prints 'the replica guard compares'
run base 2 --ddp.overlap false --zero.stage 1 && explain run
claim 'without overlap all is exposed' prints 'after backward: exposed \(ddp.overlap is false\)$'
claim 'an owner updates alone' prints 'one rank per set owns an element, with its state'

explain base.yaml -n 4 --json
claim 'a configuration has no counters' python3 -c 'import json
x = json.load(open("out")); assert x["run"] is None and "counted" not in x["bytes"] and x["seconds"] is None and x["world_size"] == 4'
went_on() {
    run base 2 --checkpoint.every 4 --train.steps 4 &&
        timeout -k 5 60 "$lockstep" train base.yaml -n 4 --run.dir run --checkpoint.resume auto --train.steps 12 >train.out 2>&1 || { cat train.out; return 1; }
    explain run --json
    ends_with 0 && python3 -c 'import json; x = json.load(open("out")); assert x["world_size"] == 4 and x["bytes"]["steps"] == 6, x'
}
claim 'a run that went on with other ranks is explained as it ended' went_on

# --- ranks that divide layers, sequences and experts
lm() { # ranks, flags...
    rm -rf run
    timeout -k 5 60 "$lockstep" train gpt2.yaml -n "$1" --run.dir run --train.micro_batch 0 --train.eval_every 0 --train.steps 4 "${@:2}" >train.out 2>&1 || { cat train.out; return 1; }
}
lm 4 --parallel.tp 2 --parallel.sp true --zero.stage 1 && explain run
claim 'a run with tp is explained' ends_with 0
claim 'its layout' prints '^run: gpt2, bf16, adam: 34720 parameters, 4 ranks = tp 2 \(sequence parallel\) x dp 2, zero.stage 1$'
claim 'where state is different' prints '^  optimizer state +[0-9]+  dp, tp +-$'
claim 'and where the same' prints '^  parameters +[0-9]+  tp +dp$'
claim 'what an axis divides of inputs and of state' prints '^  dp +2  0, 2 +samples: 4 of 8 per rank +optimizer state$'
claim 'which group a collective is in, and when' prints '^  tp 0, 1 +all_gather +enter +5 +[0-9]+ +[0-9]+  between two products: exposed$'
claim 'and that the run has counted as much' prints '^  tp 0, 1 +all_gather +14 +([0-9]+) +14 +\1$'
claim 'of all ranks' prints '^  the counters of all 4 ranks are equal to the plan, group by group$'
claim 'why parts add up' prints 'gradients of what all of them have, norms and biases, are summed over their parts of the sequence first'
explain run --rank 3
claim 'another rank has other groups' prints '^  tp 2, 3 +2 ranks on 1 node +tp$'
again() { timeout -k 5 60 "$lockstep" train run/config.yaml -n 4 --run.dir again >train.out 2>&1 || { cat train.out; return 1; }; }
claim 'config.yaml of such a run can be run again' again
lm 4 --parallel.tp 2 --parallel.tp_pieces 4 --zero.stage 1 && explain run
claim 'a run whose products go in pieces' prints ' = tp 2 \(4 pieces\) x dp 2, zero.stage 1$'
claim 'and that its counters are equal to the plan' prints '^  the counters of all 4 ranks are equal to the plan, group by group$'
claim 'and what travels beside products' prints '^  tp 0, 1 +all_reduce +leave +17 +[0-9]+ +[0-9]+  in layers beside products: the last piece is exposed$'
lm 4 --parallel.cp 2 --parallel.context gather && explain run
claim 'sequences' prints '^  cp +2  0, 1 +tokens: 16 of 32 per sequence +nothing: all of it is on each rank$'
claim 'why their losses add up' prints 'loss is computed on one rank of cp'
explain gpt2.yaml -n 4 --parallel.tp 4 --nodes 2 --train.micro_batch 0 --model.n_head 4
claim 'layers that are divided over a network' prints 'warning: tp divides layers over 2 nodes'
claim 'a node per line' prints '^  node 1 +2 tp2  \| +3 tp3$'
explain gpt2.yaml --parallel.tp 2 --parallel.cp 2 --train.micro_batch 0
claim 'without -n there are as many ranks as the degrees have' prints ', 4 ranks = tp 2 x cp 2 \(ring\), '
explain gpt2.yaml -n 4 --model.name moe --model.n_experts 4 --model.top_k 2 --parallel.ep 2 --train.micro_batch 0
claim 'experts' prints '^  ep +2  0, 1 +samples: 2 of 8 per rank +experts$'
claim 'whose rows are bounded' prints '^  ep 0, 1 +all_to_all +dispatch +2 .* at most  before the experts: exposed$'
timeout -k 5 60 "$lockstep" train gpt2.yaml -n 4 --run.dir short --train.steps 2 --parallel.tp 2 --train.micro_batch 0 --train.eval_every 0 >train.out 2>&1 || cat train.out
explain short --json
claim 'the first two steps are not counted: they move other bytes' python3 -c 'import json; assert json.load(open("out"))["counted_step"] is None'
timeout -k 5 60 "$lockstep" train base.yaml -n 2 --run.dir epochs --data.drop_last false --train.steps 0 --train.epochs 1 --train.global_batch 300 --train.eval_every 0 >train.out 2>&1 || cat train.out
explain epochs --json
claim 'the last step of an epoch, which has fewer samples, is not counted' \
    python3 -c 'import json; x = json.load(open("out"))["counted_step"]; assert x == 3, x'

# --- pipelines: closed forms of the bubble, and what `lockstep pipeline` makes of the same times
bubble_is() { # schedule, expected bubble of equal stages, alive on each rank, flags...
    explain gpt2.yaml -n 4 --parallel.pp 2 --pipeline.schedule "$1" --json "${@:4}"
    ends_with 0 && python3 - "$lockstep" "$@" <<'PY'
import json, subprocess, sys
lockstep, schedule, equal, alive = sys.argv[1:5]
p = json.load(open('out'))['pipeline']
assert (p['schedule'], p['micro_batches']) == (schedule, 4), p
assert abs(p['bubble_of_equal_stages'] - eval(equal)) < 1e-9, (p, equal)
assert [r['alive'] for r in p['ranks']] == json.loads(alive), (p, alive)
times = [','.join(repr(s[k]) for s in p['stages']) for k in ('forward', 'backward_input', 'backward_weight')]
command = [lockstep, 'pipeline', '--schedule', schedule, '-p', '2', '-m', '4', '--chunks', str(len(p['stages']) // 2), '--json',
           '--forward', times[0], '--backward-input', times[1], '--backward-weight', times[2]]
replayed = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
assert abs(replayed['bubble'] - p['bubble']) < 1e-6 and p['bubble'] > 0, (replayed['bubble'], p)
assert abs(sum(r['idle'] for r in p['ranks']) / 2 - p['bubble']) < 1e-9, p
PY
}
claim '1F1B: the bubble, (p - 1) / (m + p - 1)' bubble_is 1f1b '1 / 5' '[2, 1]'
claim 'GPipe: the same, and all micro-batches alive' bubble_is gpipe '1 / 5' '[4, 4]'
claim 'interleaved: (p - 1) / (v m + p - 1)' bubble_is interleaved '1 / 9' '[5, 3]' --model.n_layer 4
claim 'ZB-H1: (p - 1) F of m (F + I + W) + (p - 1) F' bubble_is zb-h1 '1 / 13' '[2, 2]'
claim 'ZB-V: half of a stage' bubble_is zb-v '0.5 / 12.5' '[4, 4]' --model.n_layer 4
claim 'and uneven stages' bubble_is 1f1b '1 / 5' '[2, 1]' --pipeline.split 0.5,1.5
operations() { explain gpt2.yaml -n 2 --parallel.pp 2 --json "$@" && python3 -c 'import json
print(sum(s[k] for s in json.load(open("out"))["pipeline"]["stages"] for k in ("forward", "backward_input", "backward_weight")))'; }
claim 'any cut has the same operations' test "$(operations --pipeline.split 0.5,1.5)" = "$(operations --pipeline.split 1,1)"
explain gpt2.yaml -n 2 --parallel.pp 2 --pipeline.split 2,0 --model.d_model 512 --model.n_head 4 --model.seq_len 256 --train.dtype f32 --json
claim 'operations are those of the products, 6 T N, and few more' python3 -c 'import json
T, C, V, L = 256, 512, 257, 2
layers, head = [sum(s[k] for k in ("forward", "backward_input", "backward_weight")) for s in json.load(open("out"))["pipeline"]["stages"]]
assert 1 < layers / (6 * T * 12 * C * C * L) < 1.2 and 1 < head / (6 * T * C * V) < 1.3, (layers, head)'
explain gpt2.yaml -n 8 --parallel.pp 2 --parallel.tp 2
claim 'a rank per line' prints '^  4 +1 +1 +[0-9.e+]+ +[0-9.]+ % +1$'
claim 'the bubble' prints '^  bubble: by these operations ranks idle [0-9.]+ % of a step; if all stages took equally long, 20.0 %$'
# a stage with the embedding and one layer: 1 + 2 leaves forward and 2 enters backward per micro-batch, of [1, 32, 32] in bf16
claim 'exposed: collectives inside layers' prints "^  exposed +tp +$((4 * 5)) calls +$((4 * 5 * 32 * 32 * 2)) bytes\$"
claim 'exposed: a tied embedding' prints "^ +pp +1 call +$((129 * 32 * 4)) bytes\$"
claim 'not exposed: gradients of replicas, in backward' prints '^  beside computing +dp +1 call '
claim 'not exposed: messages' prints "^ +pp +8 calls +$((4 * 32 * 32 * 2)) bytes\$"
explain gpt2.yaml -n 8 --parallel.pp 2 --parallel.tp 2 --ddp.overlap false
claim 'without overlap gradients are exposed, too' prints '^ +dp +1 call '
claim 'and only messages are beside computing' prints '^  beside computing +pp +8 calls '
explain gpt2.yaml -n 2 --parallel.tp 2 --json
claim 'without stages there is no pipeline' python3 -c 'import json
x = json.load(open("out")); assert x["pipeline"] is None
assert any(k["exposed"] for r in x["ranks"] for g in r["groups"] for k in g["calls"]), x'
lm 2 --parallel.pp 2 --train.micro_batch 2 && explain run
claim 'a run has its pipeline, too' prints '^pipeline of rank 0: schedule 1f1b, 4 micro-batches per step$'
{ cat gpt2.yaml && echo 'parallel: { pp: 2 }'; } >piped.yaml
explain piped.yaml --compare run
claim 'compare: bubbles' prints '^  bubble +[0-9.]+ % +[0-9.]+ %$'

# --- where the run says something else
refuses() { # status, text, words...
    explain "${@:3}"
    ends_with "$1" && says "$2"
}
run base 2 || exit 1
cp -r run other && sed -i 's/dims: \[64, 128, 60, 10\]/dims: [64, 128, 61, 10]/' other/config.yaml
grep -q '61, 10' other/config.yaml || { cat other/config.yaml; exit 1; }
claim 'bytes that are not of this configuration' refuses 65 'steps rank 0 moved 66' other
claim 'with both numbers, and what to look at' says 'but the plan of its config.yaml for 2 ranks on one node has 67'
rm -rf other && cp -r run other && sed -i '0,/"all_reduce": {"calls": \([0-9]*\), "bytes": [0-9]*/s//"all_reduce": {"calls": \1, "bytes": 4242/' other/comm.json
claim 'a group that moved other bytes' refuses 65 'other/comm.json: step 8: rank 0 called 2 all_reduce in group world and moved 4242 bytes by them, but the plan of config.yaml has 2 calls and ' other
rm -rf other && cp -r run other && sed -i 's/"group": "world"/"group": "tp 0, 1"/' other/comm.json
claim 'a group that the plan does not have' refuses 65 'other/comm.json: rank 0 has a group tp 0, 1, which the plan of config.yaml does not have' other
rm -rf other && cp -r run other && sed -i 's/"nodes": \[0, 0\]/"nodes": [0, 0, 0]/' other/comm.json
claim 'counters of other ranks' refuses 65 'other/comm.json is of 3 ranks, and metrics.jsonl of 2' other
rm -rf other && cp -r run other && sed -i 's/"nodes": \[0, 0\]/"nodes": [0, 9]/' other/comm.json
claim 'a node that cannot be' refuses 65 'nodes: of rank 1: expected a number from 0 to 1' other
rm -rf other && cp -r run other && echo '{' >other/comm.json
claim 'no JSON' refuses 65 'other/comm.json: line' other
rm -rf other && cp -r run other && rm other/comm.json && explain other
claim 'a run of an earlier version has no comm.json' ends_with 0
rm -rf other && cp -r run other && sed -i 's/"optim": {"planned": [0-9]*, "peak": [0-9]*/"optim": {"planned": 8, "peak": 8/' other/memory.json
claim 'memory that is not' refuses 65 'other/memory.json: optim.peak is 8 bytes, but the plan of config.yaml has 133' other
rm -f other/memory.json && explain other --json
claim 'a run that was killed has no memory.json' python3 -c 'import json; assert json.load(open("out"))["memory_compared"] is False'
sed -i 's/"world_size": 2, //' other/metrics.jsonl
claim 'a run that does not say its ranks' refuses 65 'does not say how many ranks the run had: say so by --ranks' other
explain other -n 2
claim 'may be told' ends_with 0
rm other/metrics.jsonl
claim 'no metrics' refuses 65 "other is no run's folder" other
claim 'flags of a run' refuses 64 '--zero.stage: a run is explained as it was' run --zero.stage 1
claim 'ranks of a run' refuses 64 'run says that the run had 2: leave it out' run -n 2
claim 'several numbers of ranks' refuses 64 'expected one number, found 2' base.yaml -n 1,2
claim 'stages of no table' refuses 64 '--stages belongs to' base.yaml --stages 1
claim 'a batch that cannot be divided' refuses 78 'train.global_batch is 32, which 3 ranks' base.yaml -n 3
claim 'a rank that is not there' refuses 64 '--rank: there are ranks 0 to 1, found 2' base.yaml -n 2 --rank 2
claim 'nodes that cannot share the ranks' refuses 78 '--nodes: 3 nodes cannot have equally many of 4 ranks' base.yaml -n 4 --nodes 3
mkdir empty
claim 'a folder that is no run' refuses 65 "empty: a folder without config.yaml, so it is not a run's: expected the folder that" empty
claim 'a word that names nothing' refuses 74 'pipes: No such file, and no recipe of that name; recipes: ' pipes
claim 'and the topics' says '; topics: zero, dp, tp, sp, cp, ep, pp, 3d, roofline'
finish
