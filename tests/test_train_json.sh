#!/bin/bash
# test_train_json.sh -- `lockstep train --json`: one object as the last line, after `final`, whose numbers are those of the run's
# files, of --dump-buckets and of the counters. What is not a training is refused.
#
#   tests/test_train_json.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small=(--model.dims '784,64,32,10' --ddp.first_bucket 4KiB --ddp.bucket_cap 64KiB --train.steps 3 --train.epochs 0)

# A Python expression over the last line of stdout, j, and the run's files.
json() {
    python3 - "$1" <<'PY'
import json, os, re, sys
lines = open("out").read().splitlines()
j = json.loads(lines[-1])
run = j["run_dir"]
metrics = [json.loads(l) for l in open(run + "/metrics.jsonl")] if os.path.exists(run + "/metrics.jsonl") else []
memory = json.load(open(run + "/memory.json"))
final = re.match(r"final step=(\d+) loss=(\S+) digest=(\S+)$", lines[-2]).groups()
dumped = [re.match(r"  bucket \d+: (.*): (\d+) bytes$", l).groups() for l in lines if l.startswith("  bucket ")]
listed = [(", ".join(b["parameters"]), str(b["bytes"])) for s in ("first_step", "last_step") for b in j["buckets"][s]["list"]] if j["buckets"] else []
value = eval(sys.argv[1])
if not value:
    print("not so:", sys.argv[1], "in", json.dumps(j))
    sys.exit(1)
PY
}
keys='["lockstep_train", "version", "ranks", "ranks_as", "transport", "steps", "steps_here", "loss", "loss_bits", "losses", "grad_norms", "digest", "parameters", "batch", "run_dir", "comm", "buckets", "seconds_per_step", "attention", "memory"]'
colls='["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "barrier", "sendrecv"]'

for as in processes threads; do
    train 2 --json --dump-buckets --ranks-as $as --run.dir $as "${small[@]}"
    claim "$as: runs" ends_with 0
    claim "$as: one object" test "$(grep -c '^{' out)" = 1
    claim "$as: its keys" json "list(j) == $keys"
    claim "$as: of the line before" json 'final == (str(j["steps"]), j["loss_bits"], j["digest"]) and float.fromhex(j["loss_bits"]) == j["loss"]'
    claim "$as: losses and norms are those of metrics.jsonl" json '[(m["loss_metrics/global_avg_loss"], m["grad_norm"]) for m in metrics] == list(zip(j["losses"], j["grad_norms"]))'
    claim "$as: the ranks" json "(j['ranks'], j['ranks_as'], j['transport']) == (2, '$as', 'shm')"
    claim "$as: the batch" json 'j["batch"] == {"global": 96, "per_rank": 48, "micro_batch": 48, "micro_batches": 1}'
    claim "$as: parameters" json 'j["parameters"] == 784*64+64 + 64*32+32 + 32*10+10'
    claim "$as: buckets are those of --dump-buckets" json 'len(listed) == 3 and listed == dumped'
    claim "$as: they hold every gradient" json 'sum(b["bytes"] for b in j["buckets"]["last_step"]["list"]) == 4 * j["parameters"]'
    claim "$as: every collective" json "all(list(r)[3:] == $colls for r in j['comm']['ranks']) and list(j['comm'])[3:-1] == $colls"
    claim "$as: a rank's bytes are those of metrics.jsonl" json 'j["comm"]["ranks"][0]["bytes"] == metrics[-1]["comm/bytes"]'
    claim "$as: they are sums" json 'all(sum(c["bytes"] for c in r.values() if isinstance(c, dict)) == r["bytes"] and sum(c["calls"] for c in r.values() if isinstance(c, dict)) == r["calls"] for r in j["comm"]["ranks"])'
    claim "$as: over the ranks, too" json 'j["comm"]["bytes"] == sum(r["bytes"] for r in j["comm"]["ranks"]) and j["comm"]["all_reduce"]["calls"] == sum(r["all_reduce"]["calls"] for r in j["comm"]["ranks"])'
    claim "$as: an all_reduce per bucket and one for the norm" json 'j["comm"]["ranks"][1]["all_reduce"]["calls"] == j["buckets"]["last_step"]["n"] + 1'
    claim "$as: memory is that of memory.json" json 'all(v["peak"] == j["memory"]["ranks"][0][k] for k, v in memory.items())'
    claim "$as: of all ranks" json 'j["memory"]["total"] == sum(r["total"] for r in j["memory"]["ranks"]) and [r["rank"] for r in j["memory"]["ranks"]] == [0, 1]'
    claim "$as: the time of a step" json '0 <= j["seconds_per_step"]["exposed"] <= j["seconds_per_step"]["all"]'
done
train 2 --json --zero.stage 2 --optim.name adam --run.dir z "${small[@]}"
claim 'ZeRO: gradients are reduce_scattered, values all_gathered' json 'j["comm"]["reduce_scatter"]["bytes"] > 0 and j["comm"]["all_gather"]["bytes"] > 0'
claim 'ZeRO: each rank has its part of the state' json '8 * j["parameters"] <= j["memory"]["optim"] < 9 * j["parameters"] and min(r["optim"] for r in j["memory"]["ranks"]) > 3 * j["parameters"]'
train 1 --json --run.dir alone --train.steps 1 --train.epochs 0
claim 'one rank, one step: nothing moves' json 'j["comm"]["bytes"] == 0 and j["seconds_per_step"] is None'
train 1 --json --run.dir long --train.global_batch 2 --train.steps 1003 --train.epochs 0
claim 'losses of the first 1,000 steps' json 'len(j["losses"]) == len(j["grad_norms"]) == 1000 and j["steps_here"] == 1003 and j["losses"] == [m["loss_metrics/global_avg_loss"] for m in metrics[:1000]]'
train 1 --run.dir long2 --train.steps 2 --train.epochs 0
train 1 --json --checkpoint.resume auto --run.dir long2 --train.steps 2 --train.epochs 0
claim 'a run with nothing to do: no communication' json 'j["steps"] == 2 and j["steps_here"] == 0 and j["comm"] is None and j["buckets"] is None and j["losses"] == []'
train 1 --run.dir quiet --train.steps 1 --train.epochs 0
claim 'without --json there is none' test "$(grep -c '^{' out)" = 0

refused() { # exit status, words, options...
    local status=$1 words=$2
    shift 2
    train 1 --json "$@"
    claim "refused: $*" ends_with "$status"
    claim "says why: $*" says "$words"
}
refused 78 'json belongs to training, and eval-only is true' --eval-only --model.load long2
refused 78 'json belongs to training, and dry-run is true' --dry-run
refused 78 'json belongs to training, and explain is mfu' --explain mfu
refused 64 '--json is about a run, and --print-config starts none' --print-config
finish
