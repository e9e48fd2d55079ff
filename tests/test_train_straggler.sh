#!/bin/bash
# test_train_straggler.sh -- the warning of a rank that slows the others down: which rank, in what, when; and no warning
# of a machine that is busy.
#
#   tests/test_train_straggler.sh BUILD        LOCKSTEP_TEST_LONG=1: 20 runs of each kind, and runs with noise
. "$(dirname "$0")/harness_train.sh"
times=1
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || times=20
runs=0 # that have a straggler; `named` has a line for each in which it was named
: >named

# Trains $1 ranks with more options. Leaves the warnings in `warned`, and the events of them in `told`.
watch() {
    rm -rf run events
    train "$1" --run.dir run --events events --log.every 100 "${@:2}"
    grep -h ' straggler: ' err >warned
    grep -hs '"event":"straggler' events >told
}
# The only warning of the run names rank $1 and phase $2, by step $3.
names() {
    [ "$code" = 0 ] && [ "$(wc -l <warned)" = 1 ] && [ "$(wc -l <told)" = 1 ] &&
        grep -qE "^\[rank 0\] straggler: rank $1 takes [0-9.]+x the median rank's $2 time \([0-9.]+ ms against [0-9.e-]+ ms per step, last [0-9]+ steps\), and the other ranks wait for it: look " warned &&
        grep -qE "\"event\":\"straggler\",\"gen\":1,\"rank\":$1,\"step\":[0-9]+,\"phase\":\"$2\",\"ratio\":" told &&
        [ "$(sed -nE 's/.*"step":([0-9]+).*/\1/p' told)" -le "$3" ] || { cat err warned told; return 1; }
    echo >>named
}
silent() { [ "$code" = 0 ] && [ ! -s warned ] && [ ! -s told ] || { cat err; return 1; }; }

# --- which rank, in what --------------------------------------------------------------------------------
of_kind() { # transport, fault, phase, more options
    local slow=$((runs++ % 4))
    watch 4 --comm.transport "$1" --train.steps 25 --inject "$2@$slow:4+" "${@:4}"
    claim "$1, $2 ${*:4}: rank $slow and its phase are named within 20 steps" names $slow "$3" 24
}
for ((i = 0; i < times; i++)); do
    of_kind shm slow compute
    of_kind tcp slow-input input
    [ $times -gt 1 ] || continue
    of_kind tcp slow compute
    of_kind shm slow-input input
    of_kind shm slow compute --zero.stage 3 --zero.copy rank
    of_kind shm slow compute --comm.progress thread
done

# --- what is none ----------------------------------------------------------------------------------------
watch 2 --train.steps 25 --inject slow@1:4+ --log.straggler 0
claim 'log.straggler 0: no warning' silent
watch 2 --train.steps 60 --inject slow@1:20
claim 'one long step: no warning' silent
watch 2 --train.steps 3 --log.straggler 0.5
claim 'log.straggler between 0 and 1 is refused' ends_with 78
claim 'and why' says 'log.straggler is 0.5: a rank is slow from so many times the median rank'

# --- a rank that gets a fifth of a core, and then a whole one ------------------------------------------------
long=(--model.dims 784,512,512,10 --train.epochs 100000 --train.global_batch 384 --train.eval_every 1000000)
quota=/sys/fs/cgroup/cpu/lockstep-test-$$ all=/sys/fs/cgroup/cpu # as cgroups are mounted in version 1, and in version 2
[ -e $all/cpu.cfs_quota_us ] || quota=/sys/fs/cgroup/lockstep-test-$$ all=/sys/fs/cgroup
limit() {
    mkdir "$quota" || return 1
    if [ -e "$quota/cpu.cfs_quota_us" ]; then
        echo 20000 >"$quota/cpu.cfs_period_us" && echo 4000 >"$quota/cpu.cfs_quota_us"
    else
        echo '4000 20000' >"$quota/cpu.max"
    fi
}
rank_pid() { sed -nE "s/.*\"rank_spawn\".*\"rank\":$1,\"pid\":([0-9]+).*/\1/p" events | head -1; }
throttled() { # rank
    local pid job home
    rm -rf run events err
    timeout -k 5 60 "$lockstep" train base.yaml -n 2 --run.dir run --events events "${long[@]}" >out 2>err &
    job=$!
    until_true grep -qs '"event":"step"' events
    pid=$(rank_pid "$1") home=$all/$(sed -nE 's/^([0-9]+:([a-z,]*,)?cpu(,[a-z,]*)?|0:):(.*)/\4/p' "/proc/$pid/cgroup" | head -1)
    echo "$pid" >"$quota/cgroup.procs"
    until_true grep -qs '"event":"straggler",' events
    echo "$pid" >"$home/cgroup.procs"
    until_true grep -qs '"event":"straggler_over",' events
    kill -TERM $job
    wait $job
    grep -h ' straggler: ' err >warned
    head -1 warned | grep -qE "straggler: rank $1 takes [0-9.]+x the median rank's compute time" &&
        tail -1 warned | grep -qE '^\[rank 0\] straggler: rank [01] is slow no longer$' || { cat err; return 1; }
    echo >>named
}
if limit 2>/dev/null; then
    for ((i = 0; i < times; i++)); do
        claim "a rank with a fifth of a core, $((i + 1)): it is named, and its recovery is told" throttled $((runs++ % 2))
    done
else
    echo 'skipped: a CPU limit for one rank needs cgroups that this user may write'
fi
[ ! -d "$quota" ] || rmdir "$quota"

# --- a busy machine -----------------------------------------------------------------------------------------
noisy() { # runs, ranks, seconds
    local i spin=()
    for i in 1 2; do
        while :; do :; done &
        spin+=($!)
    done
    for ((i = 0; i < $1; i++)); do
        rm -rf run events
        timeout "$3" "$lockstep" train base.yaml -n "$2" --run.dir run --events events "${long[@]}" >out 2>err
        grep -h ' straggler: ' err >>warned
    done
    kill "${spin[@]}"
    wait "${spin[@]}" 2>/dev/null
}
: >warned
noisy $((times > 1 ? 10 : 1)) 4 5
claim "four ranks beside two busy processes, $((times > 1 ? 10 : 1)) runs: no warning" test ! -s warned
echo "slow ranks that were named: $(wc -l <named) of $runs"
finish
