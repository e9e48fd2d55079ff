#!/bin/bash
# test_train_faults.sh -- lockstep train when something breaks on purpose: --inject and
# Ctrl-C. Who is blamed, in what time, with which exit code, and that nothing is left.
#
#   tests/test_train_faults.sh BUILD        LOCKSTEP_TEST_LONG=1: more repetitions
set -m # with job control a background job gets Ctrl-C
. "$(dirname "$0")/harness_faults.sh"
times=5
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || times=20

since() { # ms from the last event $1 to the last event $2
    local a b
    a=$(grep "\"event\":\"$1\"" events.jsonl | tail -1 | grep -oE '"t_ns":[0-9]+') b=$(grep "\"event\":\"$2\"" events.jsonl | tail -1 | grep -oE '"t_ns":[0-9]+')
    echo $(((${b#*:} - ${a#*:}) / 1000000))
}

# --- a rank is killed -----------------------------------------------------------------------------
for transport in shm tcp; do
    for ((i = 1; i <= times; i++)); do
        rm -f events.jsonl
        fault $transport kill@1:5 --events events.jsonl
        claim "$transport, killed, $i: exit 82" ends_with 82
        claim "$transport, killed, $i: rank and step come first" first_line_blames rank-died
        claim "$transport, killed, $i: the signal is named" grep -qE '^lockstep: error.* step=5 rank=1 .*: was killed by signal 9 \(SIGKILL\), computing after ' err
        claim "$transport, killed, $i: and its last collective" grep -qE '^lockstep: error.* all_(gather|reduce) #[0-9]+ of world' err
        # from the last step that rank 0 finished, right before the kill, to the end of the launcher
        claim "$transport, killed, $i: over before any deadline (of 30 s)" test "$(since step exit)" -lt 25000
        claim "$transport, killed, $i: nothing is left" nothing_left
    done
done

# --- what was saved by then --------------------------------------------------------------------------
fault shm kill@1:5 --log-dir logs
claim 'killed before a save: there is no checkpoint' grep -qx '  checkpoint: no checkpoint was saved' err
claim 'and how to have one' grep -qx '  to go on  : start again; --checkpoint.every N saves while it trains' err
claim 'the signal is said once' test "$(grep -c SIGKILL err)" = 1
claim 'killed before a save: failure.json' grep -q '"checkpoint": null' logs/*/failure.json
rm -rf logs
fault shm kill@1:5 --checkpoint.every 2 --log-dir logs # steps 2 and 4: rank 1 waits for the save before it goes on
named=$tmp/run/checkpoints/step-00000004
claim 'killed after a save: the newest checkpoint' grep -qFx "  checkpoint: the newest checkpoint of this run is $named (step 4)" err
claim 'and how to go on from it' grep -qFx "  to go on  : the same command with --checkpoint.resume $named" err
claim 'killed after a save: which is there, whole' "$lockstep" ckpt verify "$named"
claim 'killed after a save: failure.json' grep -qF "\"checkpoint\": \"$named\"" logs/*/failure.json
claim 'killed after a save: its step' grep -q '"checkpoint_step": 4' logs/*/failure.json
"$lockstep" run --nproc-per-node 2 -- sh -c 'exit 3' >out 2>err
claim 'a program that does not train: nothing about checkpoints' test "$(grep -c checkpoint err)" = 0

# --- one that is stopped, hangs, does something else ----------------------------------------------
for transport in shm tcp; do
    fault $transport stop@1:5 --comm.timeout 1s
    claim "$transport, stopped: exit 83" ends_with 83
    claim "$transport, stopped: rank and step come first" blames rank-hung
    claim "$transport, stopped: its state is named" grep -qE 'state T' err
    claim "$transport, stopped: it is a deadline that has passed" \
        grep -qE 'rank 0 waited [0-9]+\.[0-9] s in all_reduce .* for rank 1|rank=1 .* is stopped .* and silent for [0-9]+\.[0-9] s' err
    claim "$transport, stopped: nothing is left" nothing_left
    fault $transport hang@1:5 --comm.timeout 1s
    claim "$transport, hung: exit 83" ends_with 83
    claim "$transport, hung: rank and step come first" blames rank-hung
    claim "$transport, hung: it is said where it was" says 'which is in step 5, computing after all_reduce #'
    claim "$transport, hung: nothing is left" nothing_left
    rm -f events.jsonl
    fault $transport mismatch@1:5 --events events.jsonl
    claim "$transport, mismatch: exit 76" ends_with 76
    claim "$transport, mismatch: named first" blames coll-mismatch '[01]'
    claim "$transport, mismatch: one side" says '(bucket 0) of world: 50912 float avg'
    claim "$transport, mismatch: the other side" says 'of world: 3 float max'
    claim "$transport, mismatch: with both ranks" grep -qE 'rank [01] called all_reduce .*, but rank [01] called all_reduce' err
    claim "$transport, mismatch: before any deadline (of 30 s)" test "$(since step detect)" -lt 25000
    claim "$transport, mismatch: nothing is left" nothing_left
done

# --- a loss that is not a number ------------------------------------------------------------------------
train 2 --train.steps 4 --run.dir clean
clean=$(sed -n '$s/.*digest=//p' out)
fault shm nan@1:5 --checkpoint.every 1
claim 'nan: exit 80' ends_with 80
claim 'nan: rank and step come first' blames nan
claim 'nan: and are in the sentence' says 'the loss of rank 1 in step 5 is not finite; no weight was changed by this step'
claim 'nan: no final line' test "$(grep -c ^final out)" = 0
saved=$(ls -d "$tmp"/run/checkpoints/step-00000004)
"$lockstep" train base.yaml --train.epochs 0 --model.load "$saved" --run.dir loaded >out 2>err
claim 'nan: the newest checkpoint is that of four clean steps' test "$(sed -n '$s/.*digest=//p' out)" = "$clean"
claim 'nan: and there is none of step 5' test ! -e "${saved%4}5"
claim 'nan: nothing is left' nothing_left

# --- replicas that part ----------------------------------------------------------------------------------
for ranks in 2 3; do
    unlike= # of two ranks neither is in the majority
    [ $ranks != 2 ] || unlike=', unlike rank 0'
    fault shm diverge@1:5
    claim "diverged, $ranks ranks: exit 81" ends_with 81
    claim "diverged, $ranks ranks: the rank comes first, in the step that has compared" \
        grep -qE "^lockstep: error\[diverged\] gen=1 step=6 rank=1 " err
    claim "diverged, $ranks ranks: what, where, since when" \
        says 'replicas have other parameters since the update of step 5: 0.weight on rank 1'"$unlike"'. Every rank must make the same update'
    claim "diverged, $ranks ranks: no final line" test "$(grep -c ^final out)" = 0
done

# Several sets of shards: ranks that hold the same shard are compared, and no others.
two='--zero.hsdp 2' three='--zero.hsdp 3'
while read -r ranks transport rank named options; do
    how="diverged, $ranks ranks over $transport, zero.stage $options"
    fault $transport diverge@$rank:5 --zero.stage $options
    claim "$how: exit 81" ends_with 81
    claim "$how: the rank and the step that has compared" grep -qE "^lockstep: error\[diverged\] gen=1 step=6 rank=${named%%,*} " err
    claim "$how: what, where, since when" \
        says "replicas have other parameters since the update of step 5: 0.weight on rank ${named//_/ }. Every rank must make the same update"
done <<ROWS
4 shm 1 3,_unlike_rank_1 1 $two
4 shm 2 2,_unlike_rank_0 2 $two
4 shm 1 3,_unlike_rank_1 3 $two
4 tcp 3 3,_unlike_rank_1 3 --zero.copy rank $two
6 shm 1 1 1 $three
6 tcp 4 4 2 $three
ROWS

# Experts that ranks divide have other replicas than the rest: dp (and cp) alone.
cat >moe.yaml <<YAML
model: { name: moe, n_layer: 1, n_head: 2, d_model: 16, d_expert: 16, n_experts: 4, top_k: 2, seq_len: 8 }
data: { path: $tmp/tokens }
train: { steps: 8, global_batch: 16, seed: 1 }
log: { tensorboard: false }
YAML
small_text 60
# Ranks, the fault, the parameter and the ranks of the message, options.
while read -r ranks fault name named options; do
    how="experts: $fault, $ranks ranks $options"
    # shellcheck disable=SC2086
    timeout -k 5 60 "$lockstep" train moe.yaml -n "$ranks" --inject "$fault" $options >out 2>err
    code=$?
    claim "$how: exit 81" ends_with 81
    claim "$how: the step that has compared" grep -qE '^lockstep: error\[diverged\] gen=1 step=4 ' err
    claim "$how: what, where" says "replicas have other parameters since the update of step 3: $name on rank ${named//_/ }. Every"
done <<'ROWS'
8 diverge-experts@6:3 model.layers.0.block_sparse_moe.experts.w1.weight 6 --parallel.ep 2
4 diverge-experts@3:3 model.layers.0.block_sparse_moe.experts.w1.weight 3,_unlike_rank_1 --parallel.ep 2
8 diverge-experts@5:3 model.layers.0.block_sparse_moe.experts.w1.weight 5,_unlike_rank_4 --parallel.ep 4 --parallel.cp 2
8 diverge-experts@7:3 model.layers.0.block_sparse_moe.experts.w1.weight 7,_unlike_rank_3 --parallel.ep 2 --zero.stage 1 --zero.hsdp 2
4 diverge@3:3 model.embed_tokens.weight 3 --parallel.ep 4
ROWS
# shellcheck disable=SC2086
timeout -k 5 60 "$lockstep" train moe.yaml -n 2 --inject diverge-experts@1:3 >out 2>err
code=$?
claim 'experts: without parallel.ep there are no others' says 'no experts are divided here: expected parallel.ep above 1'
ranks=4
fault shm diverge@1:5 --zero.stage 1 $two --train.steps 5 --train.epochs 0
claim 'diverged in the last update of shards: exit 81' ends_with 81
fault tcp diverge@1:5 --zero.stage 1 $two --ddp.guard false
claim 'diverged shards, and nobody looks: exit 0' ends_with 0
traffic() { # collectives of all ranks in step 3, and bytes of rank 0 in step 4
    grep -o '"cat":"comm"' "$tmp/run/trace/trace.json" && grep -o '"comm/bytes": [0-9]*' "$tmp/run/metrics.jsonl" | tail -1
}
for stage in 0 "1 $two"; do
    for guard in true false; do
        fault tcp slow@1:2 --zero.stage $stage --ddp.guard $guard --train.steps 4 --train.epochs 0 --trace.steps 3:3
        traffic >$guard.count
    done
    claim "stage $stage: the guard adds neither a collective nor a byte to a step" \
        eval '[ -s true.count ] && cmp true.count false.count'
done
ranks=2
fault shm diverge@1:5 --train.steps 5 --train.epochs 0
claim 'diverged in the last update: exit 81' ends_with 81
fault shm diverge@1:5 --ddp.guard false
claim 'diverged, and nobody looks: exit 0' ends_with 0

# --- Ctrl-C -------------------------------------------------------------------------------------------------
endless() { # more options; leaves pid, and returns in the middle of training
    litter | sort >before
    rm -rf out err "$tmp/long"
    "$lockstep" train base.yaml --nproc-per-node 2 --train.epochs 1000000 --log.every 1 --run.dir "$tmp/long" "$@" >out 2>err &
    pid=$!
    until_true grep -qs '^step:  5 ' out
}
finished() {
    wait $pid 2>/dev/null
    code=$?
}
endless
kill -INT $pid
finished
claim 'Ctrl-C: exit 130' ends_with 130
claim 'Ctrl-C: one line' test "$(wc -l <err)" = 1
claim 'Ctrl-C: which says what was kept' grep -qE '^lockstep train: error\[interrupted\]: stopped by Ctrl-C after step [0-9]+ of [0-9]+; kept .*/long/checkpoints/step-' err
claim 'Ctrl-C: and that is there, whole' "$lockstep" ckpt verify "$(sed -E 's/.*; kept //' err)"
claim 'Ctrl-C: the last step has its line in metrics.jsonl' test "$(wc -l <"$tmp"/long/metrics.jsonl)" = "$(sed -E 's/.* after step ([0-9]+) .*/\1/' err)"
claim 'Ctrl-C: nothing is left' nothing_left

endless --inject hang@1:6
start=${EPOCHREALTIME/./}
kill -INT $pid
until_true grep -q 'once more kills them' err
claim 'Ctrl-C while a rank hangs: one line after a second' test "$(wc -l <err)" = 1
kill -INT $pid
finished
took=$(((${EPOCHREALTIME/./} - start) / 1000))
claim 'a second Ctrl-C: exit 130' ends_with 130
claim 'a second Ctrl-C: not when the 35 s of the first are over' test $took -lt 30000
claim 'a second Ctrl-C: it is said that nothing was saved' says 'stopped by Ctrl-C: ranks were killed; no checkpoint was saved'
claim 'a second Ctrl-C: nothing is left' nothing_left

# Whenever it comes after lockstep answers at all: what was kept, or that nothing was.
watches() { # pid: SIGINT is caught, by lockstep: who it is comes first, since the shell that becomes it catches it, too
    local caught
    [ "$(readlink /proc/$1/exe)" = "$lockstep" ] || return 1
    caught=$(sed -n 's/^SigCgt:\t//p' /proc/$1/status)
    ((16#${caught:-0} & 2))
}
answers() { # one line: nothing was kept, or a checkpoint, which is there
    [ "$(grep -c '^lockstep train: ' err)" = 1 ] || { cat err; return 1; }
    says 'error[interrupted]: stopped by Ctrl-C before the first step; nothing was kept' >/dev/null ||
        "$lockstep" ckpt verify "$(sed -nE 's/^lockstep train: .*stopped by Ctrl-C after step .*; kept //p' err)" ||
        { cat err; return 1; }
}
for ranks in 1 2; do
    for wait in 0 0 0.005 0.01 0.02 0.03 0.05 0.1; do
        litter | sort >before
        rm -rf out err "$tmp/early"
        "$lockstep" train base.yaml --nproc-per-node $ranks --train.epochs 1000000 --run.dir "$tmp/early" >out 2>err &
        pid=$!
        until_true watches $pid
        sleep $wait # no state to wait for: any moment is to be right
        kill -INT $pid
        finished
        claim "Ctrl-C $wait s after the start of $ranks: exit 130" ends_with 130
        claim "Ctrl-C $wait s after the start of $ranks: says what was kept" answers
        claim "Ctrl-C $wait s after the start of $ranks: nothing is left" nothing_left
    done
done
for signal in INT TERM; do # rank 1 never comes, so that rank 0 cannot begin
    rm -rf "$tmp/early"
    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) "$lockstep" train base.yaml --run.dir "$tmp/early" >out 2>err &
    pid=$!
    until_true watches $pid
    kill -$signal $pid
    finished
    claim "SIG$signal before the first step: exit 128 + its number" ends_with $((128 + $(kill -l $signal)))
    claim "SIG$signal before the first step: nothing was kept" grep -qE '^lockstep train: error\[interrupted\]: stopped by (Ctrl-C|SIGTERM) before the first step; nothing was kept$' err
    claim "SIG$signal before the first step: one line" test "$(wc -l <err)" = 1
done

endless
kill -TERM $pid
finished
claim 'SIGTERM: exit 75 after a save' ends_with 75
claim 'SIGTERM: one line' test "$(wc -l <err)" = 1
claim 'SIGTERM: nothing is left' nothing_left

endless
kill -KILL $pid
finished
claim 'the launcher killed: its ranks go too' nothing_left

# The check itself: it finds a process that has stayed.
litter | sort >before
bash -c 'sleep 30; :' "$tmp/stays" &
pid=$!
is_found() { litter | sort | comm -13 before - | grep -q "$tmp/stays"; }
claim 'a process that stays is found' until_true is_found
kill -KILL -- -$pid
wait $pid 2>/dev/null
finish
