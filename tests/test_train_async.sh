#!/bin/bash
# test_train_async.sh -- lockstep train with checkpoint.async: the same checkpoints, written while training goes on; what a stop, a
# kill and a full disk leave.
set -m
. "$(dirname "$0")/harness_train.sh"
. "$source_dir/tests/harness_disk.sh"
export WHAT=shard-00001-model-00001-of-00001.safetensors # of rank 0: what is slow below
sed -i 's/name: sgd, lr: 0.05/name: adamw, lr: 0.01/' base.yaml
every=(--checkpoint.every 10 --checkpoint.async true --train.epochs 2)

# --- the same checkpoints ------------------------------------------------------------------------------------
same() { # of steps 10 and 20 of two runs
    local step
    for step in 10 20; do "$lockstep" ckpt diff "$1/checkpoints/step-000000$step" "$2/checkpoints/step-000000$step" || return 1; done
}
for stage in 0 1 2 3; do
    for ranks in 1 2 4; do
        train $ranks --zero.stage $stage --train.steps 21 --checkpoint.every 10 --checkpoint.keep 9 --run.dir waited-$stage-$ranks
        digest=$(final)
        train $ranks --zero.stage $stage --train.steps 21 "${every[@]}" --checkpoint.keep 9 --run.dir async-$stage-$ranks
        claim "stage $stage on $ranks: as many saves, all whole" test "$("$lockstep" ckpt verify async-$stage-$ranks | wc -l)" = 3
        claim "stage $stage on $ranks: the same checkpoints" same waited-$stage-$ranks async-$stage-$ranks
        claim "stage $stage on $ranks: the same end" test "$(final)" = "$digest"
        claim "stage $stage on $ranks: the copy is in the plan" grep -qE '"ckpt": \{"planned": ([1-9][0-9]*), "peak": \1,' async-$stage-$ranks/memory.json
    done
done
claim 'nothing is planned without it' grep -q '"ckpt": {"planned": 0, "peak": 0,' waited-0-1/memory.json
timeout 60 "$lockstep" train base.yaml --ranks-as threads --nproc-per-node 2 --zero.stage 2 --train.steps 21 "${every[@]}" --checkpoint.keep 9 \
    --run.dir threads >out 2>err
claim 'ranks that are threads: the same checkpoints' same waited-2-2 threads

# --- training goes on ------------------------------------------------------------------------------------------
begin() { # folder, more options: two ranks whose first save is held; leaves pid
    rm -f out err events held
    LD_PRELOAD=$tmp/slow.so HELD=held "$lockstep" train base.yaml --nproc-per-node 2 --log.every 1 "${every[@]}" --events events \
        --run.dir "$1" "${@:2}" >out 2>err &
    pid=$!
    until_true test -e held
}
ended() { ! kill -0 $pid 2>/dev/null; }
release() { # until the run has ended
    rm -f held
    ended
}
lines() { sed -nE 's/.*"event":"(step|ckpt_[a-z]*)".*"rank":0,"step":([0-9]*).*/\1 \2/p' events; }
begin goes --train.steps 30
until_true grep -qs ckpt-waits err
claim 'a save in flight: nothing is announced yet' test -z "$(grep -o 'ckpt_durable' events || grep '^checkpoint: ' out)"
claim 'a save in flight: and nothing has its name' test ! -e goes/checkpoints/step-00000010
claim 'a save in flight: a second one waits, which is said' says 'the checkpoint of step 20 is due, and that of step 10 is still being written'
until_true release
wait $pid
code=$?
claim 'a save in flight: the run ends in order' ends_with 0
claim 'a save in flight: steps between its begin and its end' test "$(lines | sed -n '/ckpt_begin 10/,/ckpt_durable 10/p' | grep -c '^step')" = 10
claim 'a save in flight: the last one waits silently' test "$(grep -c ckpt-waits err)" = 1
claim 'a save in flight: all are announced' test "$(grep -c '^checkpoint: goes/checkpoints/step-000000[123]0$' out)" = 3
claim 'a save in flight: two are left, and whole' test "$("$lockstep" ckpt verify goes | wc -l)" = 2

# --- a stop, a kill ------------------------------------------------------------------------------------------------
begin stopped --checkpoint.every 1000 --train.epochs 200
kill -TERM $pid
until_true grep -q 'SIGTERM' err out
until_true release
wait $pid
code=$?
claim 'SIGTERM while a save is in flight: 75' ends_with 75
claim 'SIGTERM while a save is in flight: that one is durable' prints '^checkpoint: stopped/checkpoints/step-00001000$'
claim 'SIGTERM while a save is in flight: and that of the last step' \
    says "kept $(sed -n 's/^checkpoint: //p' out | tail -1)"
claim 'SIGTERM while a save is in flight: which is another one' test "$(grep -c '^checkpoint: ' out)" -ge 2
claim 'SIGTERM while a save is in flight: both are whole' test "$("$lockstep" ckpt verify stopped | wc -l)" = 2
claim 'SIGTERM while a save is in flight: nothing temporary' nothing_temporary stopped

train 2 --train.epochs 2 --checkpoint.every 10 --run.dir undisturbed
digest=$(final)
begin killed
rm held
until_true test -e held # the second one
until_true grep -q '"event":"step".*"step":2[1-9]' events
claim 'kill -9 while a save is in flight: the page says what is durable' test "$(lines | grep durable)" = 'ckpt_durable 10'
kill -9 "$(sed -nE 's/.*"event":"rank_spawn".*"rank":0.*"pid":([0-9]+).*/\1/p' events)"
wait $pid
code=$?
claim 'kill -9 while a save is in flight: 82' ends_with 82
claim 'kill -9 while a save is in flight: the older one is named' says 'killed/checkpoints/step-00000010 (step 10)'
claim 'kill -9 while a save is in flight: and is whole' "$lockstep" ckpt verify killed/checkpoints/step-00000010
claim 'kill -9 while a save is in flight: there is no other' test "$(ls -A killed/checkpoints)" = step-00000010
train 2 "${every[@]}" --run.dir killed --checkpoint.resume auto
claim 'kill -9 while a save is in flight: the run goes on to the same end' test "$(final)" = "$digest"

# the same between two saves, while no rank waits
begin alone --checkpoint.every 1000 --train.epochs 200
kill -9 "$(sed -nE 's/.*"event":"rank_spawn".*"rank":0.*"pid":([0-9]+).*/\1/p' events)"
wait $pid
code=$?
claim 'kill -9 while a thread writes and no rank waits: 82' ends_with 82
claim 'kill -9 while a thread writes and no rank waits: nothing is left' test -z "$(ls -A alone/checkpoints)"

# a loss that is not finite ends the run, after the save that is in flight
begin nan --inject nan@1:15
until_true grep -q '"event":"step".*"step":14' events
until_true release
wait $pid
code=$?
claim 'a loss that is not finite: its status' ends_with 80
claim 'a loss that is not finite: the save in flight is whole' "$lockstep" ckpt verify nan/checkpoints/step-00000010
claim 'a loss that is not finite: and named' says 'nan/checkpoints/step-00000010 (step 10)'

# --- a full disk ------------------------------------------------------------------------------------------------------
full() { FULL=$1 LD_PRELOAD=$tmp/slow.so train 2 "${every[@]}" --checkpoint.every "$2" --train.steps "$3" --run.dir "$4"; }
full step-00000020. 10 41 once
claim 'a disk that is full once: training goes on' ends_with 0
claim 'a disk that is full once: that is said' says 'ckpt-failed: while saving step 20 as once/checkpoints/step-00000020: rank 0: '
claim 'a disk that is full once: the later ones are whole' test "$("$lockstep" ckpt verify once | wc -l)" = 2
claim 'a disk that is full once: nothing temporary is left' nothing_temporary once
full step-000000 3 30 always
claim 'three saves in a row: 74' ends_with 74
claim 'three saves in a row: two warnings' test "$(grep -c '^\[rank 0\] ckpt-failed: .*training goes on, and there is no checkpoint yet$' err)" = 2
claim 'three saves in a row: nothing temporary is left' nothing_temporary always
SLOW=40 LD_PRELOAD=$tmp/slow.so train 2 "${every[@]}" --train.steps 21 --checkpoint.timeout 1s --comm.timeout 5s --run.dir hung
claim 'a thread that hangs: 83 when the next save waits longer than checkpoint.timeout' ends_with 83

# --- every so often ---------------------------------------------------------------------------------------------------
# The launcher notes a begin when it looks, which on a busy machine is some ms later for one save than for the next.
gaps() { # between the begins of the first so many saves: the least one, in ms
    sed -nE 's/.*"t_ns":([0-9]+).*"ckpt_begin".*/\1/p' events | head -"$1" |
        awk 'NR > 1 && (!least || $1 - last < least) { least = $1 - last } { last = $1 } END { printf "%d", least / 1e6 }'
}
for async in true false; do
    rm -f events
    train 3 --checkpoint.async $async --checkpoint.every 30ms --train.epochs 20 --events events --run.dir often-$async
    saves=$(grep -c ckpt_durable events)
    claim "every 30ms, async $async: ends in order" ends_with 0
    claim "every 30ms, async $async: there are several" test "$saves" -ge 3
    claim "every 30ms, async $async: none is begun in half the time" test "$(gaps $((saves - 1)))" -ge 15
    claim "every 30ms, async $async: the configuration has the time" grep -q '^  every: 30ms' often-$async/config.yaml
done
train 2 --checkpoint.every 10h --train.steps 30 --run.dir seldom
claim 'every 10h: one at the end' test "$(ls seldom/checkpoints)" = step-00000030
train 2 --checkpoint.every 0s
claim 'every 0s is refused' ends_with 64
claim 'every 0s: what is expected' says "expected a time such as 10m, or an integer in 0..4294967295, found '0s'"
train 2 --checkpoint.every 1.5
claim 'every 1.5 steps is refused' ends_with 64

# --- refused ------------------------------------------------------------------------------------------------------------
train 2 --checkpoint.async true --checkpoint.consolidate always
claim 'with model.safetensors in each checkpoint: refused' ends_with 78
claim 'with model.safetensors in each checkpoint: what to do' says 'set checkpoint.consolidate to last or never'
finish
