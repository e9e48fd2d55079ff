#!/bin/bash
# test_train_save.sh -- lockstep train on a slow disk: who waits for a save, for how long, and what a stop leaves.
set -m # with job control a background job gets Ctrl-C
. "$(dirname "$0")/harness_train.sh"

echo 'checkpoint: { consolidate: always }' >>base.yaml # each save writes model.safetensors, which is slow below

. "$source_dir/tests/harness_disk.sh"

# --- a save that takes longer than comm.timeout ------------------------------------------------------------
# It sleeps most of its time, beside those that follow; its claims are at the end.
mkdir all && cp base.yaml all && {
    (cd all && WHAT='trace.json config.yaml memory.json model.safetensors' slow 3 2 --comm.timeout 2s --train.steps 2 --trace.steps 1:2 --run.dir slow
        echo "$code" >code) &
    all_slow=$!
}
slow 3 2 --comm.transport tcp --comm.timeout 2s --train.steps 2 --checkpoint.every 1 --run.dir wire
claim 'tcp: saves of 3 s with comm.timeout 2s: ends in order' ends_with 0

# two hosts: that rank 0 is saving travels with the heartbeat
port=$(free_port)
"$lockstep" secret new secret >/dev/null
host() { # of two, with one rank; more options
    LD_PRELOAD=$tmp/slow.so timeout -k 5 60 "$lockstep" run --nnodes 2 --node-rank "$1" --master-addr 127.0.0.1 --master-port "$port" \
        --nproc-per-node 1 --secret-file secret -- "$lockstep" train base.yaml --comm.timeout 2s --train.steps 1 "${@:2}" >"out$1" 2>"err$1"
    echo $? >"code$1"
}
SLOW=3 host 1 & other=$!
SLOW=3 host 0 --run.dir hosts
wait $other
claim 'two hosts: the other one waits, too' test "$(cat code0 code1)" = $'0\n0'

slow 40 2 --comm.timeout 2s --checkpoint.timeout 1s --train.steps 4 --checkpoint.every 2 --run.dir hung
claim 'a save longer than checkpoint.timeout: 83' ends_with 83
claim 'names the rank, the step, the file and the key' \
    grep -qE 'error\[rank-hung\] gen=1 step=2 rank=0 .*in step 2, saving hung/checkpoints/step-00000002 for [0-9.]+ s; checkpoint.timeout allows 1.0 s' err
claim 'and leaves nothing temporary' nothing_temporary hung

# --- Ctrl-C in the middle of a save -------------------------------------------------------------------------
saving() { # seconds of the save, folder; leaves pid
    rm -f out err events
    LD_PRELOAD=$tmp/slow.so SLOW=$1 "$lockstep" train base.yaml --nproc-per-node 2 --comm.timeout 2s --train.steps 1 \
        --run.dir "$2" --events events >out 2>err &
    pid=$!
    until_true grep -qs ckpt_begin events
}
saving 9 patient
kill -INT $pid
wait $pid
claim 'Ctrl-C in a save of 9 s: the save is whole' "$lockstep" ckpt verify patient
claim 'Ctrl-C in a save of 9 s: nothing temporary is left' nothing_temporary patient
saving 40 killed
kill -INT $pid
until_true grep -qs 'once more kills' err
kill -INT $pid
wait $pid
code=$?
claim 'a second Ctrl-C in a save: 130' ends_with 130
claim 'a second Ctrl-C in the first save: it is said that there is no checkpoint' says 'stopped by Ctrl-C: ranks were killed; no checkpoint was saved'
claim 'a second Ctrl-C in a save: nothing temporary is left' nothing_temporary killed

interrupted() { # once more: two signals within 10 ms are one
    kill -INT $pid 2>/dev/null
    ! kill -0 $pid 2>/dev/null
}
# In the second save: the first is named, and whole.
for how in train run; do
    rm -f out err held
    command=("$lockstep" train base.yaml --train.steps 2 --checkpoint.every 1 --run.dir $how)
    [ $how = train ] && command+=(--nproc-per-node 2) || command=("$lockstep" run --nproc-per-node 2 -- "${command[@]}")
    LD_PRELOAD=$tmp/slow.so HELD=held "${command[@]}" >out 2>err &
    pid=$!
    until_true test -e held
    rm held # the first save goes on
    until_true test -e held
    kill -INT $pid
    until_true grep -qs 'once more kills' err
    until_true interrupted
    wait $pid
    code=$?
    claim "$how: a second Ctrl-C in the second save: 130" ends_with 130
    claim "$how: a second Ctrl-C in the second save: the first is named" \
        says "ranks were killed; the newest checkpoint of this run is $how/checkpoints/step-00000001 (step 1)"
    claim "$how: a second Ctrl-C in the second save: and is whole" "$lockstep" ckpt verify $how/checkpoints/step-00000001
    claim "$how: a second Ctrl-C in the second save: there is no other" test "$(ls -A $how/checkpoints)" = step-00000001
done

# --- a save that fails is not the end ---------------------------------------------------------------------------
full() { FULL=$1 LD_PRELOAD=$tmp/slow.so train 2 --train.steps "$2" --checkpoint.every 1 --run.dir "$3"; }
full step-00000002. 5 once
claim 'a disk that is full once: training goes on' ends_with 0
claim 'a disk that is full once: that is said'     says 'ckpt-failed: while saving step 2 as once/checkpoints/step-00000002: rank 0: '
claim 'a disk that is full once: and what is left' says 'training goes on, and the newest checkpoint is once/checkpoints/step-00000001'
claim 'a disk that is full once: the later ones are whole' test "$("$lockstep" ckpt verify once | wc -l)" = 2
claim 'a disk that is full once: nothing temporary is left' nothing_temporary once
full step-00000001. 4 first
claim 'the first save fails' says 'training goes on, and there is no checkpoint yet'
full sharded 9 always
claim 'three saves in a row: 74' ends_with 74
claim 'three saves in a row: two warnings' test "$(grep -c '^\[rank 0\] ckpt-failed: .*training goes on, and there is no checkpoint yet$' err)" = 2
claim 'three saves in a row: the third ends the run' says 'error[ckpt-failed] gen=1 step=3 rank=0'
full 'step-0000000[134].' 5 apart
claim 'three saves that are not in a row: training goes on' ends_with 0
claim 'three saves that are not in a row: each is warned of' test "$(grep -c '^\[rank 0\] ckpt-failed' err)" = 3
full step-00000003. 3 last
claim 'the last save: 74' ends_with 74
claim 'the last save: the one before is whole' test "$("$lockstep" ckpt verify last | grep -c 'step 2,')" = 1

# --- results that nobody reads, or that cannot be written -----------------------------------------------------
for ranks in 1 2; do
    "$lockstep" train base.yaml --nproc-per-node $ranks --train.steps 20 --log.every 1 --run.dir piped$ranks 2>err | :
    claim "$ranks: a reader of stdout that goes away ends nothing" test "${PIPESTATUS[0]}" = 0
    claim "$ranks: which is said once" test "$(grep -c 'stdout was closed by its reader; training goes on without it' err)/$(wc -l <err)" = 1/1
    claim "$ranks: everything is saved" "$lockstep" ckpt verify piped$ranks/checkpoints/step-00000020
done
"$lockstep" run --nproc-per-node 2 -- "$lockstep" train base.yaml --train.steps 20 --log.every 1 --run.dir piped-run 2>err | :
claim 'run: a reader of stdout that goes away ends nothing' test "${PIPESTATUS[0]}" = 0
claim 'run: which is said once' test "$(grep -c 'stdout was closed by its reader; training goes on without it' err)/$(wc -l <err)" = 1/1
claim 'run: everything is saved' "$lockstep" ckpt verify piped-run/checkpoints/step-00000020
for ranks in 1 2 "2 --ranks-as threads"; do
    timeout -k 5 60 "$lockstep" train base.yaml --nproc-per-node $ranks --train.steps 3 --run.dir "mute$ranks" >/dev/full 2>err
    code=$?
    claim "$ranks: a full disk for stdout is no success" ends_with 74
    claim "$ranks: and is said" says "writing to standard output failed, and lines are missing there; the run is complete in mute$ranks"
    claim "$ranks: everything is saved" "$lockstep" ckpt verify "mute$ranks/checkpoints/step-00000003"
done
FULL=metrics.jsonl LD_PRELOAD=$tmp/slow.so train 2 --train.steps 30 --log.every 1 --run.dir full
claim 'a full disk for metrics: exit 0' ends_with 0
claim 'metrics that cannot be written: one warning' test "$(grep -c 'metrics.jsonl cannot be written: No space left on device; training goes on' err)" = 1
claim 'and training goes on' grep -q '^step: 30 ' out
FORBIDDEN=tb LD_PRELOAD=$tmp/slow.so train 2 --train.steps 3 --log.every 1 --run.dir forbidden
claim 'an event file that cannot be created: exit 0' ends_with 0
claim 'an event file that cannot be created: one warning, with folder and reason' \
    test "$(grep -c 'the folder forbidden/tb: Permission denied; training goes on without it' err)/$(wc -l <err)" = 1/1
claim 'an event file that cannot be created: training goes on' prints '^final step=3 '
for after in 0 2; do # not even its head; some lines
    FULL=tfevents AFTER=$after LD_PRELOAD=$tmp/slow.so train 2 --train.steps 6 --log.every 1 --run.dir events$after
    claim "an event file without room after $after writes: exit 0" ends_with 0
    claim "an event file without room after $after writes: one warning, with file and reason" \
        test "$(grep -c "writing events$after/tb/events.out.tfevents.*: No space left on device; training goes on without it" err)/$(wc -l <err)" = 1/1
    claim "an event file without room after $after writes: metrics are whole" test "$(wc -l <events$after/metrics.jsonl)" = 6
done
FULL=metrics.jsonl STUCK=1 LD_PRELOAD=$tmp/slow.so train 2 --comm.timeout 1s --train.steps 2 --log.every 2 --run.dir stuck
claim 'metrics that take 3 s to write with comm.timeout 1s: the others wait' ends_with 0

# --- a single rank whose save hangs: nobody waits for it, but the launcher -----------------------------------
slow 40 1 --events alone.jsonl --checkpoint.timeout 1s --train.steps 4 --checkpoint.every 2 --run.dir alone
claim 'one rank, a save longer than checkpoint.timeout: 83' ends_with 83
claim 'one rank: the report names the rank, the step, the file and the key' \
    grep -qE 'error\[rank-hung\] gen=1 step=2 rank=0 .*is in step 2, saving alone/checkpoints/step-00000002 for [0-9.]+ s; checkpoint.timeout allows 1.0 s' err
claim 'one rank: and that there is no checkpoint' says '  checkpoint: no checkpoint was saved'
claim 'one rank: nothing temporary is left' nothing_temporary alone

# --- the run of the beginning ----------------------------------------------------------------------------------
wait $all_slow
cd all && code=$(cat code) || exit 1
claim 'all files take 3 s with comm.timeout 2s: ends in order' ends_with 0
claim 'with its last line' prints '^final step=2 '
claim 'and a whole checkpoint' "$lockstep" ckpt verify slow
finish
