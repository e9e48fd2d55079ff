#!/bin/bash
# test_plan_check.sh -- `lockstep train --predict` and `lockstep plan --check`, and recipes of `lockstep plan` in `lockstep sim`.
# The references are layers that sleep, whose steps have closed forms, and what the ranks of the run count.
#
#   tests/test_plan_check.sh BUILD        LOCKSTEP_TEST_LONG=1: twice as many layouts
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read JSON'; exit 1; }
export LOCKSTEP_CALIBRATION=none
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >timed.yaml <<YAML
model: { name: timed, dims: [64, 64, 64, 64, 10], forward_ms: [3], backward_ms: [6] }
data: { name: synthetic }
train: { steps: 5, global_batch: 16, micro_batch: 2, eval_every: 0 }
YAML
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 4, n_head: 4, d_model: 64, seq_len: 32, vocab_size: 258 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 8, eval_every: 0 }
optim: { name: adamw }
YAML
run() { # configuration, flags...: trains into the folder `run`
    rm -rf run
    timeout -k 5 100 "$lockstep" train "$@" --run.dir run >out 2>err
    code=$?
    [ $code = 0 ] || { cat out err; return 1; }
}
check() {
    timeout -k 5 60 "$lockstep" plan --check run "$@" >out 2>err
    code=$?
}
# An expression of p (predicted.json), t (its times), c (`plan --check --json`) and m (times of that).
holds() {
    check --json
    ends_with 0 && python3 - "$1" <<'PY'
import json, sys
p, c = json.load(open('run/predicted.json')), json.load(open('out'))
t, m = p['time'], c['time']
def near(a, b, e): return abs(a - b) <= e * abs(b)
parts = sum(t[k] for k in ('compute_s', 'optimizer_s', 'data_s', 'exposed_s', 'bubble_s'))
assert near(parts, t['step_s'], 1e-9), t # the parts are the step
assert c['exact'] and all(x['predicted'] == x['counted'] or x['at_most'] for x in c['terms']), c
assert eval(sys.argv[1]), (p['time'], c['time'])
PY
}

# What a run takes is the clock's, which other processes lengthen: `holds EXPRESSION` after `run ARGUMENTS`, of up to four runs.
takes() {
    local expression=$1 try
    shift
    for try in 1 2 3 4; do
        [ $try = 1 ] || run "$@" || return 1
        holds "$expression" && return
    done
    return 1
}

# --- four layers that sleep for 3 ms forward and 6 ms backward each: 8 micro-batches over p stages take (8 + p - 1) of a stage's
claim 'one rank' run timed.yaml --predict
claim 'eight micro-batches, one after another: 288 ms' holds '.288 <= t["step_s"] < .288 * 1.15 and t["bubble_s"] == 0'
claim 'which the run takes, too' takes 'near(m["step"]["predicted_s"], m["step"]["measured_s"], .15)' timed.yaml --predict
claim 'with the folder of the run' test -s run/predicted.json
for p in 2 4; do
    claim "1F1B, $p stages" run timed.yaml -n $p --parallel.pp $p --predict
    claim "$p stages: the closed form of the step and of its bubble" \
        holds "1 <= t['step_s'] / ((8 + $p - 1) * .036 / $p) < 1.15 and near(t['bubble_s'] / t['step_s'], ($p - 1) / (8 + $p - 1), .1)"
    claim "$p stages: which the run takes, too" \
        takes "near(m['step']['predicted_s'], m['step']['measured_s'], .2) and near(m['bubble']['predicted_s'], m['bubble']['measured_s'], .35)" timed.yaml -n $p --parallel.pp $p --predict
done
claim 'ranks that sleep need no cores' run timed.yaml -n 8 --parallel.pp 2 --predict
claim 'eight ranks, two micro-batches of 4 stages each' holds '1 <= t["step_s"] / ((2 + 1) * .018) < 1.15'

# --- a link of 1 MB/s that is known to be one: the bytes of the vector take that long
cat >slow.json <<'JSON'
{ "lockstep_calibration": 1, "loopback": { "alpha_ns": 1000000, "gap_ns": 1000, "beta_ns_per_byte": 1000 } }
JSON
export LOCKSTEP_CALIBRATION=$PWD/slow.json
slow=(--ddp.overlap false --comm.transport 'fault:tcp,rate=1MB/s@0-1')
claim 'a slow link' run timed.yaml -n 2 "${slow[@]}" --train.micro_batch 8 --predict
claim 'its bytes, and three latencies' python3 -c '
import json
p = json.load(open("run/predicted.json"))
moved = sum(x["bytes"] for x in p["ranks"][0]["comm"].values())
assert 40e3 < moved < 70e3 and abs(p["time"]["exposed_s"] - (moved * 1e-6 + 3e-3)) < 2e-3, p'
claim 'memory is exact for ranks that are bound to cores, which choose an algorithm by all cores' holds 'm["exposed"]["measured_s"] > .04'
claim 'which the run waits for, too' takes 'near(m["exposed"]["predicted_s"], m["exposed"]["measured_s"], .3)' \
    timed.yaml -n 2 "${slow[@]}" --train.micro_batch 8 --predict
export LOCKSTEP_CALIBRATION=none

# --- operations are timed in processor time; ranks on one core have it in turn, and collectives are no computing
seconds() { # flags of `lockstep sim`: what a rank computes per step, and the step, into $compute and $step
    read -r compute step < <(OMP_NUM_THREADS=1 timeout -k 5 100 "$lockstep" sim gpt.yaml --json --train.global_batch 16 "$@" 2>err |
        python3 -c 'import json, sys; j = json.load(sys.stdin); print(j["stages"][0]["compute_s"], j["step_s"])')
}
within() { awk "BEGIN { exit !($1 > $2 && $1 < $3) }" || { echo "$1: expected $2 to $3"; cat err; return 1; }; }
core=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
seconds -n 1
alone=$compute
seconds -n 2 --parallel.tp 2 --parallel.sp true
claim 'of two ranks that divide layers, one computes less than three quarters of what one alone does' within "$(awk "BEGIN { print $compute / $alone }")" 0 .75
one_core() { taskset -cp "$core" $BASHPID >/dev/null && seconds "$@" && echo "$step"; }
claim 'four ranks on one core take as long as one with all samples' within "$(awk "BEGIN { print $(one_core -n 4) / $(one_core -n 1) }")" .75 1.35

# --- every axis: memory, calls and bytes are exact
cases=('-n 4 --parallel.tp 2 --parallel.sp true' '-n 4 --parallel.pp 2 --train.micro_batch 2' '-n 2 --zero.stage 3' '-n 2 --ranks-as threads'
    '-n 2 --parallel.ep 2 --model.name moe --model.n_experts 4 --model.top_k 2 --model.d_expert 64' '-n 4 --parallel.tp 4'
    '-n 4 --zero.stage 2 --zero.hsdp 2 --comm.transport tcp' '-n 4 --zero.stage 3 --zero.hsdp 2 --zero.copy rank'
    '-n 6 --parallel.pp 2 --parallel.cp 3 --train.seq_len 30' '-n 2 --ddp.hook powersgd' '-n 2 --ddp.hook powersgd --ddp.powersgd_start 3')
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || cases+=('-n 2 --parallel.cp 2' '-n 2 --zero.stage 1' '-n 2 --zero.stage 2' '-n 2 --zero.stage 3 --zero.copy rank'
    '-n 2 --train.numerics invariant' '-n 4 --zero.stage 1 --zero.hsdp 2' '-n 4 --parallel.cp 4 --parallel.context ulysses-ring'
    '-n 4 --parallel.tp 2 --parallel.order tp-dp' '-n 2 --ddp.hook powersgd --ddp.powersgd_start 2 --comm.transport tcp')
exact='len(c["terms"]) >= 10 * c["world_size"] and {x["rank"] for x in c["terms"]} == set(range(c["world_size"]))'
for layout in "${cases[@]}"; do
    # shellcheck disable=SC2086
    claim "$layout" run gpt.yaml $layout --predict
    claim "$layout: exact" holds "$exact"
done

# --- what is printed
claim 'ranks that divide experts' run gpt.yaml -n 2 --parallel.ep 2 --model.name moe --model.n_experts 4 --model.top_k 2 --model.d_expert 64 --predict
claim 'whose work is that of a model that has begun to learn' prints '^prediction: .*; routers send tokens to experts as after [1-8] steps? of one rank, up to [0-9]+ % of them to one; '
claim 'a run that is predicted' run gpt.yaml -n 2 --predict
claim 'before the first step' test "$(grep -oE '^(prediction|step)' out | head -2 | tr '\n' ';')" = 'prediction;step;'
claim 'no word about experts, which there are not' bash -c '! grep -q "^prediction:.*experts" out'
claim 'time, with its parts' prints '^    exposed communication +[0-9.]+ ms +[0-9.]+ %$'
claim 'memory, as the run counts it' python3 -c '
import json, re
said = re.search(r"memory of rank 0: (.*); total (\d+) bytes", open("out").read())
m = json.load(open("run/memory.json"))
assert int(said[2]) == m["total"]["peak"] and all(int(x.split()[1]) == m[x.split()[0]]["peak"] for x in said[1].split(", ")), said[0]'
claim 'bytes, as the run counts them' python3 -c '
import json, re
said = re.search(r"communication of rank 0 per step: (\d+) calls, (\d+) bytes", open("out").read())
last = json.loads(open("run/metrics.jsonl").read().splitlines()[-2])
assert int(said[2]) == last["comm/bytes"], (said[0], last)'
claim 'exact, too' holds "$exact"
check
claim 'a table of terms' prints '^step time +[0-9.]+ ms +[0-9.]+ ms +[+-][0-9.]+ %$'
claim 'of memory, to the byte' prints '^memory: param +[0-9]+ +[0-9]+ +\+0\.00 %$'
claim 'of calls' prints '^calls of all_reduce +[0-9]+ +[0-9]+ +\+0\.00 %$'
claim 'of other ranks' prints '^ranks 1 to 1: ([0-9]+) of \1 classes of memory, calls and bytes are exact$'
claim 'and a sentence that names the largest error' prints '^the largest error is in (compute|data|exposed communication): [0-9.]+ ms were predicted and [0-9.]+ ms measured, which is [0-9.]+ % of a step too (few|many)$'
check --json
claim 'the same in JSON' python3 -c '
import json
c = json.load(open("out"))
worst = max(("compute", "data", "exposed"), key=lambda k: abs(c["time"][k]["predicted_s"] - c["time"][k]["measured_s"]))
assert c["largest_error"] == worst and c["summary"].startswith("the largest error is in "), c["summary"]'

# --- steps that something has disturbed, and the first three, do not count
claim 'a disturbed step is no typical one' python3 - "$lockstep" <<'PY'
import json, shutil, subprocess, sys
key = 'time_metrics/end_to_end(s)'
def typical(times):
    shutil.rmtree('disturbed', ignore_errors=True)
    shutil.copytree('run', 'disturbed')
    lines = open('run/metrics.jsonl').read().splitlines()
    one = next(x for x in map(json.loads, lines[::-1]) if 'eval/loss' not in x and x['comm/bytes'])
    with open('disturbed/metrics.jsonl', 'w') as f:
        for i, s in enumerate(times):
            f.write(json.dumps(dict(one, step=i + 1, **{key: s})) + '\n')
    out = subprocess.run([sys.argv[1], 'plan', '--check', 'disturbed', '--json'], capture_output=True, text=True, check=True).stdout
    t = json.loads(out)['time']
    parts = sum(v['measured_s'] for k, v in t.items() if k != 'step')
    step = t['step']['measured_s']
    assert abs(parts - step) < 1e-9 * step, (t, 'the parts are the step')
    return step
assert typical([9, 8, 7, 1, 1, 50, 1.1, 1, 1]) == 1, 'the median of the last six'
assert typical([9, 1, 3]) == 3, 'a short run has no others'
PY

# --- a plan that is wrong is found, by the term
python3 - <<'PY'
import json
x = json.load(open('run/predicted.json'))
json.dump(x, open('right.json', 'w'))
x['ranks'][1]['comm']['all_reduce']['bytes'] += 4
json.dump(x, open('wrong.json', 'w'))
x['ranks'].pop()
json.dump(x, open('short.json', 'w'))
x['world_size'] = 1
json.dump(x, open('other.json', 'w'))
PY
with() { cp "$1" run/predicted.json; check; }
with wrong.json
claim 'four bytes too many on rank 1' prints '^the plan is wrong: rank 1, bytes of all_reduce: predicted [0-9]+, counted [0-9]+ \(\+0\.[0-9e-]+ %\)$'
refused() { check; ends_with "$1" && says "$2"; }
cp short.json run/predicted.json
claim 'too few ranks' refused 65 'run/predicted.json: ranks: expected 2, found 1'
cp other.json run/predicted.json
claim 'of another run' refused 65 'run/predicted.json is of 1 ranks, and the run had 2: predict it again'
cp right.json run/predicted.json
cp run/comm.json comm.json
sed -i 's/"memory": /"no_memory": /' run/comm.json
claim 'a run of an earlier version' refused 65 'run/comm.json: memory: expected a list of 2 ranks, found 0: was it written by this version?'
cp comm.json run/comm.json
python3 - <<'PY'
import json
x = json.load(open('right.json'))
del x['time']['bubble_s']
json.dump(x, open('run/predicted.json', 'w'))
PY
claim 'a time that is missing' refused 65 'run/predicted.json: bubble_s: expected a number from 0'
echo '{' >run/predicted.json
claim 'not JSON' refused 65 'run/predicted.json: line 2: '
rm run/predicted.json
claim 'a run without a prediction: how to get one' refused 65 'nothing was predicted: train with --predict, as in `lockstep train CONFIG --predict --run.dir NEW-FOLDER`'
cp right.json run/predicted.json
rm run/comm.json
claim 'a run that has not ended' refused 65 'run/comm.json: there is no such file: the run has not ended; check it when it has, after 4 steps at least'
run gpt.yaml -n 2 --predict --train.steps 3
claim 'too few steps' refused 78 'the run has taken 3 steps, and a prediction is of those after step 3: raise train.steps'
claim 'a folder alone' fails_with 64 '--check takes the folder of a run, and --json: leave the other options out' "$lockstep" plan llama3-8b --check run
claim 'bytes that are not known are refused before the first step' fails_with 78 'while predicting the run (--predict): ddp.hook powersgd: what ranks send changes after ddp.powersgd_start 1000 steps' "$lockstep" train gpt.yaml -n 2 --ddp.hook powersgd --train.steps 0 --predict --run.dir no
claim 'and nothing to predict in an evaluation' fails_with 78 'predict belongs to training, and eval-only is true' "$lockstep" train gpt.yaml --eval-only --model.load run --predict

# --- a plan as a configuration of `lockstep sim`
plan() { timeout -k 5 60 "$lockstep" plan "$@" >plan.out 2>err || { cat err; return 1; }; }
sim() { timeout -k 5 120 "$lockstep" sim "$@" --json >sim.json 2>err || { cat err; return 1; }; }
mesh() { python3 -c "
import json
j = json.load(open('sim.json'))
assert j['ranks'] == $1 and j['mesh'] == dict(pp=$2, dp=$3, ep=$4, cp=$5, tp=$6), j['mesh']"; }
claim 'a plan for 64 devices' plan llama3-8b --topology h100-8 --world 64 --batch 256 --tp 2 --pp 2 --cp 1 --write plan.yaml
claim 'is simulated on as many, which the preset grows to' sim plan.yaml --topology h100-8
claim 'with its mesh' mesh 64 2 16 1 1 2
claim 'the recipe says how' grep -qx '# Simulate it: lockstep sim THIS --topology h100-8' plan.yaml
claim 'a small plan' plan --layers 4 --hidden 64 --heads 4 --vocab 258 --seq 32 --gated --topology ethernet-2 --world 4 --batch 8 --tp 2 --write small.yaml
claim 'on its cluster' sim small.yaml --topology ethernet-2
claim 'with the mesh of the plan' mesh 4 1 2 1 1 2
words=(--data.name whale.txt --data.tokenizer byte)
claim 'without a cluster: on this machine, with timed operations' sim small.yaml "${words[@]}"
claim 'with the same mesh' mesh 4 1 2 1 1 2
claim 'a plan of a large model' plan llama3-8b --topology h100-8 --world 8 --batch 16 --tp 2 --pp 2 --cp 1 --write large.yaml
claim 'that does not fit: nothing is timed' fails_with 71 'while timing the model on one rank: 1 rank on this machine needs ' "$lockstep" sim large.yaml "${words[@]}"
claim 'and no data' fails_with 78 'while timing the model on this machine (with --topology nothing is timed, and no data are read): data.path is missing' "$lockstep" sim small.yaml
claim 'sleeping layers: as the prediction has it' sim timed.yaml --parallel.pp 2 -n 2
claim 'the closed form again' python3 -c '
import json
j = json.load(open("sim.json"))
assert 1 <= j["step_s"] / (9 * .018) < 1.15 and abs(j["bubble"] - 1 / 9) < .02, j'
claim 'flags of clusters need one' fails_with 64 '--tflops is about a cluster: add --topology' "$lockstep" sim timed.yaml --tflops 1

# --- layouts at random
loop() { timeout -k 5 200 "$source_dir/bench/plan-loop" --build "$build" "$@" >out 2>err || { cat out err; return 1; }; }
layouts=1
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || layouts=3
claim 'bench/plan-loop' loop --layouts $layouts --starts 1 --ranks 4 --steps 4 --seed 3 --parts
claim 'a line per layout' test "$(grep -cE ' ms +[0-9.]+ ms +[+-][0-9.]+% +yes +[0-9]+% *$' out)" = $layouts
claim 'mean and worst error of step time' prints "^step time: mean error [0-9.]+ % \(target: 5\), worst [0-9.]+ % \(target: 12\), of $layouts layouts?$"
claim 'and that all bytes are exact' prints '^memory by class, calls and bytes of all ranks: exact in all layouts$'
claim 'too few steps are refused' fails_with 1 'expected at least 1, 1, 1 and 4' "$source_dir/bench/plan-loop" --build "$build" --steps 2
finish
