#!/bin/bash
# test_timed.sh -- model.name timed: an mlp, to the bit, whose layers take the time that they are told to; so overlap over
# a slow link shows, whatever the cores do.
#
#   tests/test_timed.sh BUILD
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read metrics'; exit 1; }
cat >base.yaml <<YAML
model: { name: timed, dims: [64, 128, 64, 10] }
data: { name: synthetic }
train: { steps: 4, global_batch: 32, eval_every: 4 }
optim: { name: adam, lr: 0.01 }
YAML

# --- it is an mlp
train 2 --run.dir a --model.name mlp
mlp=$(final)
train 2 --run.dir b
claim 'a timed model ends as the mlp does, to the bit' test "$(final)" = "$mlp" -a -n "$mlp"
for way in '--zero.stage 1' '--zero.stage 2' '--zero.stage 3 --zero.copy rank' '--ranks-as threads'; do
    # shellcheck disable=SC2086
    train 2 --run.dir "c$way" --model.forward_ms 0 --model.backward_ms 0,1,0 $way
    claim "and with $way" test "$(final)" = "$mlp"
done
train 1 --run.dir d --model.load b/checkpoints/step-00000004
claim 'its checkpoint loads' ends_with 0

# --- its times
steps_take() { # folder, at least so many ms each
    python3 - "$@" <<'PY'
import json, sys
times = [1000 * json.loads(l)['time_metrics/end_to_end(s)'] for l in open(sys.argv[1] + '/metrics.jsonl')]
assert all(t >= float(sys.argv[2]) for t in times), times
PY
}
train 1 --run.dir e --model.forward_ms 20 --model.backward_ms 30 --train.micro_batch 16
claim 'every layer of every micro-batch sleeps' steps_take e 300
train 1 --run.dir f --model.forward_ms 0 --model.backward_ms 0,0,90
claim 'a layer has a time of its own' steps_take f 90
order() { # the sleep of a layer's backward ends before its gradients are there
    python3 - <<'PY'
import json
trace = json.load(open('g/trace/trace.json'))['traceEvents']
for rank in 0, 1:
    es = sorted((e for e in trace if e.get('pid') == rank and e['ph'] in 'Xi' and e['args']['step'] == 3), key=lambda e: e['ts'])
    sleeps = [e for e in es if e['name'].startswith('sleep') and e['cat'] == 'backward']
    ready = [e for e in es if e['name'] == 'ready']
    assert len(sleeps) == 3 and len(ready) == 3, (sleeps, ready)
    ends = [e['ts'] + e['dur'] for e in sleeps]
    for k in range(3):
        assert ready[k]['ts'] >= ends[k] and (k == 2 or ready[k]['ts'] <= sleeps[k + 1]['ts']), (k, ready, sleeps)
    assert [e['dur'] >= ms * 1000 for e, ms in zip(sleeps, (15, 10, 5))] == [True] * 3, sleeps
PY
}
train 2 --run.dir g --trace.steps 3 --ddp.first_bucket 1KiB --ddp.bucket_cap 1KiB --model.forward_ms 0 --model.backward_ms 5,10,15
claim 'a layer sleeps before its gradients are ready, the last one first' order

# --- what it is for: three buckets of 1 MiB over a link of 50 MB/s, 21 ms each, beside layers of 40 ms
slow=(--model.dims 512,512,512,512,10 --train.global_batch 8 --train.eval_every 0 --model.forward_ms 0 --model.backward_ms 40
    --ddp.first_bucket 1KiB --ddp.bucket_cap 1000KiB --comm.progress thread --comm.transport fault:tcp,rate=50MB/s@0-1)
exposed() { # seconds, of the median step after buckets were rebuilt
    python3 -c 'import json, sys; print(sorted(json.loads(l)["comm/exposed(s)"] for l in open(sys.argv[1] + "/metrics.jsonl"))[1])' "$1"
}
half() {
    local a b
    train 2 --run.dir h "${slow[@]}" && train 2 --run.dir i "${slow[@]}" --ddp.overlap false || return
    ends_with 0 && a=$(exposed h) && b=$(exposed i) && echo "exposed: $a s, without overlap $b s"
    local code=1
    awk -v a="$a" -v b="$b" 'BEGIN { exit !(b > 0.06 && 2 * a < b) }' && code=0
    rm -rf h i
    return $code
}
claim 'overlap hides more than half of what a slow link takes' half

# --- wrong input
mistake() { # text, flags
    local text=$1
    shift
    train 1 --run.dir no "$@"
    ends_with "${code_wanted:-78}" && says "$text"
}
claim 'as many times as layers' mistake 'model.forward_ms has 2 times: expected one, or 3, one for each layer of model.dims' --model.forward_ms 1,2
claim 'backward, too' mistake 'model.backward_ms has 4 times: expected one, or 3' --model.backward_ms 1,2,3,4
code_wanted=64 claim 'a time that is too long' mistake 'numbers such as [0.9, 0.95] in 0..1000, found' --model.forward_ms 1001
claim 'a time of an mlp' mistake 'model.forward_ms belongs to model.name timed, and model.name is mlp' --model.name mlp --model.forward_ms 3
finish
