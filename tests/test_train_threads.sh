#!/bin/bash
# test_train_threads.sh -- ranks that are threads of one process train like ranks that are processes: the same model to the bit,
# the same files, one voice. What needs processes is refused.
#
#   tests/test_train_threads.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
digest_of() { sed -nE 's/^final .* digest=([0-9a-f]{32})$/\1/p' out; }

# --- the same model ---------------------------------------------------------------------------------------------
for ranks in 1 2 3; do
    for more in '' '--zero.stage 1' '--comm.transport tcp' '--comm.progress thread'; do
        # shellcheck disable=SC2086
        train $ranks $more --run.dir "p$ranks"
        claim "processes: $ranks ranks $more" ends_with 0
        processes=$(final)
        # shellcheck disable=SC2086
        train $ranks $more --ranks-as threads --run.dir "t$ranks"
        claim "threads: $ranks ranks $more" ends_with 0
        claim "the same model: $ranks ranks $more" test "$(final)" = "$processes"
        claim "one voice: $ranks ranks $more" test "$(grep -c '^final ' out)" = 1
        claim "nothing on stderr: $ranks ranks $more" test ! -s err
        checkpoint=$(sed -nE 's/^checkpoint: //p' out)
        claim "the same file: $ranks ranks $more" cmp "$checkpoint/model.safetensors" "${checkpoint/#t$ranks/p$ranks}/model.safetensors"
        rm -rf "p$ranks" "t$ranks"
    done
done
train 2 --ranks-as threads --run.dir one --trace.steps 2:3
claim 'the trace has both ranks' test "$(grep -oE '"rank [0-9]"' one/trace/trace.json | sort -u | wc -l)" = 2
processes_of() { pgrep -P "$1" | wc -l; }
timeout -k 5 60 "$lockstep" train base.yaml -n 4 --ranks-as threads --train.epochs 100000 --run.dir many >out 2>err &
pid=$!
claim 'it begins' until_true grep -q 'epoch\|step:' out
claim 'and has no child' test "$(processes_of "$(pgrep -P $pid)")" = 0
kill -INT "$(pgrep -P $pid)"
wait $pid
code=$?
claim 'Ctrl-C ends it with 130' ends_with 130
claim 'and says so once' test "$(grep -c 'error\[interrupted\]: stopped by Ctrl-C after step' err)" = 1
claim 'a checkpoint was saved' says 'kept many/checkpoints/step-'
if [ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ]; then # nproc heeds that variable
    timeout -k 5 60 "$lockstep" train base.yaml -n 2 --ranks-as threads --train.epochs 100000 --run.dir bound >out 2>err &
    pid=$!
    claim 'two ranks begin' until_true grep -q 'epoch\|step:' out
    cores_of() { cat /proc/"$(pgrep -P "$1")"/task/*/status 2>/dev/null | sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' | sort -u | wc -l; }
    claim 'their threads have cores of their own' test "$(cores_of $pid)" -ge 3 # those of two ranks, and of the first thread
    kill -INT "$(pgrep -P $pid)"
    wait $pid
else
    echo 'skipped: cores of their own: this machine has one'
fi
claim 'which is whole' "$lockstep" ckpt verify many

# --- many of them -----------------------------------------------------------------------------------------------
train 16 --ranks-as threads --train.global_batch 96 --train.steps 3 --train.epochs 0 --run.dir sixteen
claim '16 ranks on few cores' ends_with 0
sixteen=$(digest_of)
claim 'have a model' test -n "$sixteen"

# --- failures ----------------------------------------------------------------------------------------------------
train 3 --ranks-as threads --inject nan@1:2 --run.dir nan
claim 'a loss that is not finite: exit status' ends_with 80
claim 'names the rank' says 'the loss of rank 1 in step 2 is not finite'
claim 'in one line' test "$(wc -l <err)" = 1
train 3 --ranks-as threads --inject mismatch@2:2 --run.dir mismatch
claim 'another collective than the others' says 'rank 2'
claim 'is told as one error' test "$(grep -c 'error\[' err)" = 1

# --- refused -------------------------------------------------------------------------------------------------------
refused() { # words in the message, options...
    local words=$1
    shift
    train 2 --ranks-as threads "$@"
    [ "$code" -ge 64 ] && [ "$code" -lt 80 ] && says "$words" && [ ! -s out ]
}
for kind in kill stop hang; do
    claim "--inject $kind is refused" refused "--inject $kind would take all ranks with it" --inject $kind@1:2
done
claim '--events is refused' refused '--events is the launcher' --events e
claim '--log-dir is refused' refused '--log-dir is the launcher' --log-dir d
claim 'comm.backend mpi is refused' refused 'comm.backend is mpi, whose ranks are processes' --comm.backend mpi
claim 'under a launcher it is refused' fails_with 64 'a launcher has started this rank' \
    "$lockstep" run -n 1 -- "$lockstep" train base.yaml --ranks-as threads
claim 'another word is refused' fails_with 64 "--ranks-as: expected one of processes|threads" \
    "$lockstep" train base.yaml --ranks-as fibers
finish
