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

# Runs that sleep most of the time go side by side: each has a folder of its own, $1, and trains $2 ranks with more options.
watch() {
    mkdir -p "$1" && cp base.yaml "$1"
    (cd "$1" && train "$2" --run.dir run --events events --log.every 100 --train.steps 50 "${@:3}"; echo "$code" >"$1/code") &
}
# Trains 4 ranks for which the only warning has to name one rank, and what it is slow in, by the 20th step that is slow or within 10 s.
names() { # folder, rank, phase
    [ "$(cat "$1/code")" = 0 ] && [ "$(grep -c ' straggler: ' "$1/err")" = 1 ] && [ "$(grep -c '"event":"straggler' "$1/events")" = 1 ] &&
        grep -qE "^\[rank 0\] straggler: rank $2 takes [0-9.]+x the median rank's $3 time \([0-9.]+ ms against [0-9.e-]+ ms per step, last [0-9]+ steps\), and the other ranks wait for it: look " "$1/err" &&
        grep -qE "\"event\":\"straggler\",\"gen\":1,\"rank\":$2,\"step\":[0-9]+,\"phase\":\"$3\",\"ratio\":" "$1/events" &&
        [ $(($(at "$1" '"event":"straggler"') - $(at "$1" '"event":"step".*"step":3}'))) -le 11000 ] || { cat "$1/err" "$1/events"; return 1; }
    echo >>named
}
at() { grep -m1 "$2" "$1/events" | sed -nE 's/.*"t_ns":([0-9]+)[0-9]{6},.*/\1/p'; } # ms
silent() { [ "$(cat "$1/code")" = 0 ] && ! grep ' straggler: ' "$1/err" && ! grep '"event":"straggler' "$1/events"; }

# --- which rank, in what; and what is no straggler ----------------------------------------------------------
kinds=('shm slow compute' 'tcp slow-input input')
[ $times = 1 ] || kinds+=('tcp slow compute' 'shm slow-input input' 'shm slow compute --zero.stage 3 --zero.copy rank' 'shm slow compute --comm.progress thread')
for ((i = 0; i < times; i++)); do
    for k in "${!kinds[@]}"; do
        read -r transport fault phase more <<<"${kinds[k]}"
        # shellcheck disable=SC2086
        watch "$tmp/$i-$k" 4 --comm.transport "$transport" --inject "$fault@$(((i + 3 * k) % 4)):4+" $more
    done
    [ $i -gt 0 ] || watch "$tmp/off" 2 --inject slow@1:4+ --log.straggler 0
    [ $i -gt 0 ] || watch "$tmp/once" 2 --inject slow@1:20
    wait
    for k in "${!kinds[@]}"; do
        read -r _ _ phase _ <<<"${kinds[k]}"
        slow=$(((i + 3 * k) % 4)) runs=$((runs + 1))
        claim "${kinds[k]}, $((i + 1)): rank $slow and its phase are named within 10 s" names "$tmp/$i-$k" $slow "$phase"
    done
done
claim 'log.straggler 0: no warning' silent "$tmp/off"
claim 'one long step: no warning' silent "$tmp/once"
train 2 --train.steps 3 --log.straggler 0.5
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

# --- a busy machine: with LOCKSTEP_TEST_LONG ----------------------------------------------------------------
noisy() { # runs, ranks, seconds
    local i spin=()
    : >warned
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
if [ $times -gt 1 ]; then
    noisy 10 4 12
    claim 'four ranks beside two busy processes, 10 runs: no warning' diff /dev/null warned
    noisy 10 2 12
    claim 'two ranks beside two busy processes, 10 runs: no warning' diff /dev/null warned
fi
echo "slow ranks that were named: $(wc -l <named) of $runs"
finish
