#!/bin/bash
# test_explain_time.sh -- `lockstep explain RUN`: where the time of a step went, and the cause of the largest loss (R174, R176, R198,
# R199). The references are faults that the runtime makes: layers that sleep, ranks and samples that are late, a link with a rate.
#
# Most runs sleep, so several are trained side by side: `begin` starts one, `use` waits for it.
#
#   tests/test_explain_time.sh BUILD
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read JSON'; exit 1; }
export LOCKSTEP_CALIBRATION=none
cat >timed.yaml <<YAML
model: { name: timed, dims: [64, 128, 60, 10], forward_ms: [40], backward_ms: [40] }
data: { name: synthetic }
train: { steps: 10, global_batch: 24, eval_every: 0 }
YAML
explain() {
    timeout -k 5 60 "$lockstep" explain "$@" >out 2>err
    code=$?
}
side_by_side() { # name, command...: in the background; its output is in NAME.out, its exit status in NAME.status
    rm -f "$1.status"
    { "${@:2}" >"$1.out" 2>&1; echo $? >"$1.status"; } &
}
ended() { # name: waits for it, and has its status
    for _ in {1..1000}; do [ -s "$1.status" ] && break; sleep 0.1; done
    [ -s "$1.status" ] && [ "$(cat "$1.status")" = 0 ] || { cat "$1.out"; return 1; }
}
begin() { # name, ranks, flags...: trains into the folder NAME, in the background
    side_by_side "$1" timeout -k 5 100 "$lockstep" train timed.yaml -n "$2" --run.dir "$1" "${@:3}"
}
use() { # name: waits for its end, whose status it has; its folder is `run` from now on
    local status
    ended "$1"
    status=$?
    rm -rf run
    mv "$1" run
    return $status
}
time_is() { # an expression of t (its "time") and x
    explain run --json
    ends_with 0 && python3 - "$1" <<'PY'
import json, math, sys
x = json.load(open('out'))
t = x['time']
parts = t['compute_s'] + t['exposed_s'] + (t['wait_s'] or 0) + t['data_s']
assert abs(parts - t['step_s']) < 1e-6 + 0.01 * t['step_s'], t # the split is the step
assert math.isclose(t['step_s'], x['seconds'], rel_tol=1e-6), (t, x['seconds'])
assert eval(sys.argv[1]), t
PY
}
first() { grep -qE -- "$1" <<<"$(head -1 out)" || { echo "first line: $(head -1 out)"; return 1; }; }

# --- three layers that sleep 40 ms each way: 240 ms of computing, and nothing else to wait for
begin sleeping 2
begin slow-rank 3 --inject slow@1:2+
begin slow-input 3 --inject slow-input@2:2+
begin alone 1 --inject slow-input@0:2+ # in all but the first step
claim 'sleeping layers are trained' use sleeping
for try in 1 2 3 4 5; do # a machine without a free core has a cause
    explain run
    grep -q '^cause: none' out && break
    grep -q '^cause: oversubscribed' out || break
    begin sleeping 2
    use sleeping
done
claim 'sleeping layers: the time is computing' time_is '0.24 <= t["compute_s"] < 0.4 and t["data_s"] < 0.05'
claim 'and there is no cause' time_is 't["cause"] == "none" and t["cause_rank"] is None'
explain run
claim 'the first line says so' first '^cause: none: no loss takes 10 % of a step; ranks compute for [0-9.]+ % of it$'
claim 'the order: state, axes, collectives and bytes, then times' test "$(grep -oE '^(replicated or sharded|critical path of a step|where the time of a step goes)' out | tr '\n' ';')" = 'replicated or sharded;critical path of a step;where the time of a step goes;'

# --- a rank that computes for 200 ms longer in each step
claim 'a rank that is slow is trained' use slow-rank
claim 'a slow rank: which, and by how much' time_is \
    't["cause"] == "slow-rank" and t["cause_rank"] == t["slowest_rank"] == 1 and t["slowest_in"] == "compute" and 0.19 < t["slowest_s"] - t["median_s"] < 0.5'
claim 'others wait for it, and not for the link' time_is '0.15 < t["wait_s"] < 0.35 and t["exposed_s"] < 0.1'
explain run
claim 'a slow rank: the first line' first '^cause: slow-rank: rank 1 computes for [0-9.e+]+ ms per step, the median rank for [0-9.e+]+ ms: '
claim 'a slow rank: what to do' prints '^  recommendation: look at what else runs where this rank runs'

# --- a rank whose samples are late
claim 'a rank with late samples is trained' use slow-input
claim 'a slow loader' time_is \
    't["cause"] == "slow-loader" and t["cause_rank"] == t["slowest_rank"] == 2 and t["slowest_in"] == "data" and 0.19 < t["slowest_s"] < 0.35 and t["median_s"] < 0.05'
claim 'others wait for its samples' time_is '0.15 < t["wait_s"] < 0.35'
explain run
claim 'a slow loader: the first line' first '^cause: slow-loader: rank 2 loads its samples for [0-9.e+]+ ms per step'
claim 'one rank alone is trained' use alone
claim 'and waits for data' time_is 't["cause"] == "slow-loader" and t["cause_rank"] is None and 0.17 < t["data_s"] < 0.35 and t["slowest_rank"] is None'

# --- four ranks that compute on one core: none of them is slow, and no link
cat >busy.yaml <<YAML
model: { name: mlp, dims: [256, 512, 256, 10] }
data: { name: synthetic }
train: { steps: 60, global_batch: 8, eval_every: 0 }
YAML
busy() {
    rm -rf run
    timeout -k 5 100 taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$lockstep" train busy.yaml -n 4 --run.dir run >train.out 2>&1
}
claim 'four ranks on one core' busy
for try in 1 2 3 4; do # rank 0's waits are looked at: if the scheduler lets it compute last in most steps, it has few
    explain run
    grep -q '^cause: oversubscribed' out && break
    busy
done
claim 'oversubscribed cores' first '^cause: oversubscribed: rank 0 waits for [0-9.]+ % of a step, and collectives in memory take [0-9.e+]+ ms where '
claim 'oversubscribed cores: what to do' prints '^  recommendation: have at most as many ranks and threads as cores'

# --- a link of 1 MB/s: the bytes of a step take that long
slow=(--comm.transport fault:tcp,rate=1MB/s@0-1 --ddp.overlap false)
begin slow-link 2 "${slow[@]}"
begin hidden 2 --comm.transport fault:tcp,rate=1MB/s@0-1 --comm.progress thread --ddp.bucket_cap 16KiB
cat >slow.json <<'JSON'
{ "lockstep_calibration": 1, "loopback": { "alpha_ns": 1000000, "gap_ns": 1000, "beta_ns_per_byte": 1000 } }
JSON
LOCKSTEP_CALIBRATION=$PWD/slow.json begin known 2 "${slow[@]}"
claim 'a run with a slow link' use slow-link
claim 'a slow link' time_is 't["cause"] == "slow-link" and t["link"] == "loopback"'
claim 'bus bandwidth is what the link has' time_is '0.4e6 < t["bus_bytes_per_s"] < 1.1e6 and x["bytes"]["counted"] > 60e3'
explain run
claim 'a slow link: the first line' first '^cause: slow-link: rank 0 waits for messages for [0-9.]+ % of a step, and collectives take [0-9.e+]+ ms where the cost model expects '
claim 'a slow link: what to do' prints '^  recommendation: measure each pair of ranks by '
claim 'a run that hides a part' use hidden
claim 'what backward hides is under way, too' time_is 't["exposed_s"] < t["collectives_s"] and t["bus_bytes_per_s"] < 1.1e6'
# the same run on a machine whose links are known to be that slow: nothing is wrong with it
claim 'a run with a link that is known' use known
export LOCKSTEP_CALIBRATION=$PWD/slow.json
claim 'a link that is as slow as it was measured' time_is 't["cause"] == "exposed-communication" and abs(t["link_bytes_per_s"] - 1e6) < 1'
explain run
claim 'exposed: what to do' prints '^  recommendation: overlap more: ddp.overlap true'
export LOCKSTEP_CALIBRATION=none

# --- what comm.json does not say, or says wrong
python3 - <<'PY'
import json
x = json.load(open('run/comm.json'))
assert x['busy_steps'] >= 5 and [b['rank'] for b in x['busy']] == [0, 1], x
json.dump({k: v for k, v in x.items() if not k.startswith('busy')}, open('old.json', 'w'))
x['busy'].pop()
json.dump(x, open('short.json', 'w'))
x['busy'].append({'rank': 1, 'compute_s': -1, 'data_s': 0})
json.dump(x, open('less.json', 'w'))
PY
cp old.json run/comm.json
claim 'a run of an earlier version: no wait is known' time_is 't["wait_s"] is None and t["slowest_rank"] is None'
refused() { explain run; ends_with 65 && says "$1"; }
cp short.json run/comm.json
claim 'times of too few ranks' refused 'run/comm.json: busy: expected 2 ranks, found 1'
cp less.json run/comm.json
claim 'a time that cannot be' refused 'run/comm.json: busy: rank 1: compute_s: expected a number from 0'
explain timed.yaml -n 2 --json
claim 'a configuration has no times' python3 -c 'import json; x = json.load(open("out")); assert x["time"] is None and x["failure"] is None and x["out_of_memory"] is None, x'

# --- runs that failed (R176, R199): a killed rank, a link that breaks, too little memory
begin killed 3 --inject kill@1:6
begin killed-first 3 --inject kill@2:1
begin hung 3 --inject hang@1:4 --comm.timeout 1s
begin silent 2 --comm.transport fault:tcp,stall@1:20 --comm.timeout 1s
begin lost 2 --comm.transport fault:tcp,drop@1:25
fails() { # name of the run, ranks, status word, rank that failed first: the launcher's report is in the run's folder, and explain begins with it
    use "$1" && { echo 'it did not fail'; return 1; }
    explain run --json
    ends_with 0 && python3 - "${@:2}" <<'PY' || { cat "$1.out" err; return 1; }
import json, sys
x, f = json.load(open('out')), json.load(open('run/failure.json'))
r = x['failure']
n, word, rank = int(sys.argv[1]), sys.argv[2], None if sys.argv[3] == 'none' else int(sys.argv[3])
assert (r['code_word'], r['rank']) == (word, rank) == (f['code_word'], f.get('rank')), (r, f)
assert r['message'] == f['message'] and f['world_size'] == x['world_size'] == n, (r, f)
PY
}
recommends() { sed -n 2p out | grep -qE -- "^  recommendation: .*$1" || { sed -n 2p out; return 1; }; }
claim 'a rank is killed in step 6' fails killed 3 rank-died 1
claim 'with the steps before it, but for one that rank 0 has not yet written' python3 -c 'import json; x = json.load(open("out")); assert x["failure"]["step"] == 6 and x["time"]["step_s"] > 0.2 and x["bytes"]["steps"] in (4, 5), x'
explain run
claim 'a killed rank: the first line' first '^cause: failed: rank-died: rank 1 .*SIGKILL'
claim 'a killed rank: what to do' recommends "memory is short: the plan needs [0-9.]+ MiB on rank 1, and 3 ranks were on its node; .lockstep explain zero. has"
claim 'a rank is killed in the first step: there are no times' fails killed-first 3 rank-died 2
claim 'and the plan is explained' python3 -c 'import json; x = json.load(open("out")); assert x["time"] is None and len(x["ranks"]) == 3, x'
claim 'a rank that hangs' fails hung 3 rank-hung 1
explain run
claim 'a rank that hangs: what to do' recommends 'look at the rank that did not answer, and at its link: .lockstep topo links. measures each pair'
claim 'a link that falls silent' fails silent 2 rank-hung none
explain run
claim 'a silent link: the two ranks' first '^cause: failed: rank-hung: .*: the link from rank 1 to rank 0 is silent: '
claim 'a link that loses a message' fails lost 2 protocol 0
explain run
claim 'a broken link: the two ranks' first '^cause: failed: protocol: rank 0: .*rank 1 .*one was lost'
claim 'a broken link: what to do' recommends 'look at the link between the two ranks of the message'
resumed() { # folder, ranks that go on, flags that name the folder...: a failed run goes on from its checkpoint, in its own folder
    timeout -k 5 100 "$lockstep" train timed.yaml -n 2 "${@:3}" --checkpoint.every 2 --inject kill@1:4
    [ -e "$1/failure.json" ] && [ ! -e /failure.json ] || return 1
    timeout -k 5 100 "$lockstep" train timed.yaml -n "$2" "${@:3}" --checkpoint.every 2 --checkpoint.resume auto || return 1
    [ ! -e "$1/failure.json" ]
}
rm -rf run
side_by_side resumed resumed run 2 --run.dir run
side_by_side named resumed runs/named 1 --run.name named # one rank goes on, without a launcher; and without --run.dir
claim 'a run that went on in its folder has not failed' ended resumed
claim 'nor has one that one rank alone went on with' ended named
begin again 2 --comm.transport fault:tcp,drop@1:25 --train.steps 6
claim 'a run that fails again' fails again 2 protocol 0
claim 'what is broken is said' test "$(echo '{' >run/failure.json; explain run; echo $code; cat err)" = "65
lockstep explain: error[bad-file]: run/failure.json: line 2: string or '}' expected near end of file"
explain timed.yaml -n 2 --memory.limit 1MiB --memory.check true
claim 'too little memory: the first line' first '^cause: out of memory: 2 ranks on this machine need [0-9.]+ MiB, but 1.0 MiB are available; a rank.s: '
explain timed.yaml -n 2 --memory.limit 1GiB
claim 'enough memory' first '^timed, f32, '
finish
