#!/bin/bash
# test_run.sh -- lockstep run as a user meets it: flags in torchrun's spellings, exit
# codes, a training whose rank is killed, Ctrl-C, and an unchanged PyTorch script.
#
#   tests/test_run.sh BUILD
set -m # with job control, background jobs can be interrupted
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1

check() { # name, command...: like claim, with the last run's output
    local before=$failed
    claim "$@"
    [ $failed = $before ] || sed 's/^/    | /' out err 2>/dev/null
}

# Runs lockstep run with these arguments; leaves out, err and code.
run() {
    timeout -k 5 60 "$lockstep" run "$@" >out 2>err
    code=$?
}
ends_with() { [ "$code" = "$1" ]; }
says() { grep -qF -- "$1" err; }
prints() { diff <(printf '%s\n' "$@") <(sort out); }

# Waits until a command succeeds; fails after 100 s, which is a hang.
until_true() {
    for _ in {1..10000}; do
        "$@" && return 0
        sleep 0.01
    done
    return 1
}

# --- flags ---------------------------------------------------------------------------------
for spelling in '--nproc-per-node 3' '--nproc-per-node=3' '--nproc_per_node 3' '--nproc_per_node=3'; do
    # shellcheck disable=SC2086
    run $spelling --standalone --nnodes=1:1 --rdzv-backend c10d --rdzv_id=7 --max_restarts 0 sh -c 'echo $RANK/$WORLD_SIZE'
    check "$spelling" prints 0/3 1/3 2/3
done
PET_NPROC_PER_NODE=2 run sh -c 'echo $RANK/$WORLD_SIZE'
check 'a default comes from PET_NPROC_PER_NODE' prints 0/2 1/2
PET_NPROC_PER_NODE=2 run --nproc-per-node 1 sh -c 'echo $RANK/$WORLD_SIZE'
check 'a flag wins over it' prints 0/1
run --nproc-per-node cpu sh -c 'echo $WORLD_SIZE'
check 'cpu is one rank per usable core' [ "$(sort -u out)" = "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" ]
run -n auto sh -c 'echo $WORLD_SIZE'
check '-n auto, too' [ "$(sort -u out)" = "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)" ]
core=$(sed -nE 's/^Cpus_allowed_list:[[:space:]]*([0-9]+).*/\1/p' /proc/self/status)
taskset -c "$core" timeout -k 5 60 "$lockstep" run -n auto sh -c 'echo $WORLD_SIZE' >out 2>err
check '-n auto on one core is one rank' prints 1
run --nproc-per-node 2 -- echo --nproc-per-node 7
check 'behind -- everything is the program' prints '--nproc-per-node 7' '--nproc-per-node 7'
run --nproc-per-node 2 echo --tee 3
check 'behind the program everything is its own' prints '--tee 3' '--tee 3'
run --nproc-per-node 2 --prefix-rank 1 'env WHO=debugged' sh -c 'echo $RANK$WHO'
check '--prefix-rank takes a rank and a command' prints 0 1debugged
run --nproc-per-node 2 -t 3 --role rank sh -c 'echo hello'
check '-t 3 --role rank gives [rank0]:' prints '[rank0]:hello' '[rank1]:hello'
run --nproc-per-node 2 --log-dir logs --rdzv-id job -r 1 sh -c 'echo hello $RANK'
check '-r 1 fills torchrun'\''s folders' grep -q 'hello 1' logs/job_*/attempt_0/1/stdout.log

# --- Python: as torchrun has it ----------------------------------------------------------------
cat >train.py <<'PY'
import os, sys
sys.stdout.write(f"{os.environ['RANK']} {sys.argv} {int(sys.stdout.write_through)}\n") # at once, or the lines of two ranks mix
PY
run -n 2 train.py --lr 3
check 'a .py file is run by python3 -u' prints "0 ['train.py', '--lr', '3'] 1" "1 ['train.py', '--lr', '3'] 1"
ln -s train.py linked.py
run ./linked.py
check 'by a link, too' prints "0 ['./linked.py'] 1"
printf '#!/bin/sh\n"exec" "echo" "shell"\nprint("python")\n' >both.py
chmod +x both.py
run ./both.py
check 'one that is executable, too' prints python
run --no-python ./both.py
check '--no-python runs it as it is' prints shell
cp both.py plain
run ./plain
check 'a program with another name is run as it is' prints shell
run --run-path ./plain
check '--run-path: by Python' prints python
run --run-path --no-python ./plain
check '--run-path wins over --no-python' prints python
mkdir bin
cp both.py bin/in-path.py
PATH=$PATH:$tmp/bin run in-path.py
check 'a name that only PATH has is a program' prints shell
run -n 2 -m train --lr 3
check '-m runs a module' prints "0 ['$tmp/train.py', '--lr', '3'] 1" "1 ['$tmp/train.py', '--lr', '3'] 1"
printf '#!/bin/sh\necho "mine $*"\n' >bin/mine
chmod +x bin/mine
PYTHON_EXEC=$tmp/bin/mine run train.py 1
check 'PYTHON_EXEC names another Python' prints 'mine -u train.py 1'
PYTHON_EXEC=$tmp/bin/mine run -m json.tool
check 'of modules, too' prints 'mine -u -m json.tool'
PYTHON_EXEC='' run train.py
check 'an empty one names none' prints "0 ['train.py'] 1"
without_python() { timeout -k 5 60 env PATH="$tmp/empty" "$lockstep" run -n 2 train.py >out 2>err; }
without_python
code=$?
check 'no python3: exit 64' ends_with 64
check 'no python3: what to do' says "cannot run 'python3', which runs train.py: no such program in PATH: install Python 3"
check 'no python3: one line' [ "$(wc -l <err)" = 1 ]

# what torch.distributed.elastic's @record does
cat >fails.py <<'PY'
import json, os, time, traceback
path = os.environ["TORCHELASTIC_ERROR_FILE"]
assert os.path.isabs(path) and os.path.isdir(os.path.dirname(path)), path
def build(): raise ValueError("no such layer")
try: build()
except Exception as e:
    os.chdir("/")
    stack = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
    with open(path, "w") as f: json.dump({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": stack}}, f)
    if os.environ["RANK"] == "1": raise
    while True: time.sleep(1)
PY
recorded() { [ "$(grep -cE '^ *ValueError: no such layer$' err)" = 2 ]; }
run -n 2 fails.py
check "what @record writes: the rank's exit code" ends_with 1
check 'what @record writes: the traceback in the report' says '  traceback : Traceback (most recent call last):'
check 'what @record writes: its lines' grep -qE '^    File ".*fails.py", line 4, in build$' err
check "what @record writes: once in the report, once from Python" recorded
check 'what @record writes: nothing else of stderr' [ "$(grep -c 'its last lines' err)" = 0 ]
run -n 2 --log-dir records fails.py
check 'with --log-dir the file stays' grep -q '"ValueError: no such layer"' "$tmp"/records/*/attempt_0/1/error.json
check 'and is named' says "  error_file: $tmp/records/none_"
check 'failure.json has the traceback' grep -q '"traceback": "Traceback (most recent call last):.*no such layer"' records/*/failure.json

# --- mistakes: one line, the right code ------------------------------------------------------
mistake() { # code, what it says, arguments...
    local want=$1 text=$2
    shift 2
    run "$@"
    check "lockstep run $*: exit $want" ends_with "$want"
    check "lockstep run $*: says '$text'" says "$text"
    check "lockstep run $*: one line" [ "$(wc -l <err)" = 1 ]
}
mistake 64 "did you mean '--nproc-per-node'?" --nproc-per-nod 2 true
mistake 64 'which program?' --nproc-per-node 2
mistake 64 'expected 1 to 256' --nproc-per-node 257 true
mistake 64 'expected 1 to 256' --nproc-per-node two true
mistake 64 "cannot run 'absent.py': no such file" --nproc-per-node 2 absent.py
mistake 64 "cannot run './train.py' by itself" --no-python ./train.py
mistake 64 '--no-python runs PROGRAM as it is, and --module by Python' --no-python -m json.tool
mistake 64 'no such program' --nproc-per-node 2 -- no-such-program
mistake 64 '--log-dir' -r 3 true
mistake 78 'this build drives no GPU' --nproc-per-node gpu true
mistake 77 'lockstep secret new' --nnodes 2 true
PET_NNODES=many mistake 64 "'many'" true

# --- a rank dies in the middle of a training ---------------------------------------------------
# The launcher's own pid is $!; its children are the ranks.
train() { # transport, arguments of lockstep run...
    local transport=$1
    shift
    rm -rf run out err # or the last training's lines would be taken for this one's
    "$lockstep" run --nproc-per-node 2 "$@" -- "$lockstep" train --model.name mlp --model.dims 784,64,10 \
        --data.name fashion-mnist --data.path "$source_dir/tests/data/fashion-2000" --train.steps 1000000 \
        --train.global_batch 64 --log.every 1 --comm.transport "$transport" --run.dir "$tmp/run" >out 2>err &
    launcher=$!
}
in_step() { grep -q '^step: *[1-9]' out; }
gone() { ! kill -0 "$1" 2>/dev/null; }
report() { head -1 err | grep -qE "^lockstep: error\[$1\] gen=1 step=[0-9]+ rank=1 host=[^ ]+ pid=$2: "; }

for transport in shm tcp; do
    train $transport --log-dir "logs-$transport" --events events-$transport
    check "training over $transport starts" until_true in_step
    mapfile -t ranks < <(pgrep -P $launcher)
    start=${EPOCHREALTIME/[.,]/}
    kill -KILL "${ranks[1]}"
    wait $launcher
    code=$?
    took=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
    check "$transport, a killed rank: exit 82" ends_with 82
    check "$transport, a killed rank: over before any deadline (of 30 s)" [ $took -lt 25000 ]
    check "$transport, a killed rank: the first line names it" report rank-died "${ranks[1]}"
    check "$transport, a killed rank: its signal" grep -qE '^lockstep: error\[rank-died\] gen=1 step=[0-9]+ rank=1 host=[^ ]+ pid=[0-9]+: was killed by signal 9 \(SIGKILL\), ' err
    check "$transport, a killed rank: its last collective" grep -qE '^lockstep: error.*: was killed by signal 9 \(SIGKILL\).* (all_reduce|all_gather|broadcast) #[0-9]+' err
    check "$transport, a killed rank: the others end" gone "${ranks[0]}"
    check "$transport, a killed rank: failure.json" grep -q '"code_word": "rank-died"' logs-$transport/*/failure.json
    check "$transport, a killed rank: events" grep -q '"event":"detect","gen":1,"rank":1' events-$transport
done

# --- Ctrl-C ----------------------------------------------------------------------------------------
train shm
check 'training starts again' until_true in_step
mapfile -t ranks < <(pgrep -P $launcher)
kill -INT $launcher
wait $launcher
code=$?
check 'Ctrl-C: exit 130' ends_with 130
check 'Ctrl-C: says so' says 'lockstep: interrupted: 2 ranks may end in order'
check 'Ctrl-C: ranks gone' gone "${ranks[1]}"

train shm
check 'training starts a third time' until_true in_step
mapfile -t ranks < <(pgrep -P $launcher)
store=$(tr '\0' '\n' <"/proc/${ranks[0]}/environ" | sed -n 's/^LOCKSTEP_STORE=//p')
check 'the rendezvous is an abstract socket' grep -qF "@$store" /proc/net/unix
{ kill -KILL $launcher; wait $launcher; } 2>/dev/null
check 'launcher killed: rank 0 goes with it' until_true gone "${ranks[0]}"
check 'launcher killed: rank 1 goes with it' until_true gone "${ranks[1]}"
no_socket() { ! grep -qF "@$store" /proc/net/unix; }
check 'launcher killed: no socket is left' until_true no_socket

# --- PyTorch ------------------------------------------------------------------------------------------
if /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null; then
    PYTHON_EXEC=/usr/bin/python3 run -n 2 "$source_dir/tests/data/ddp.py"
    check 'an unchanged PyTorch DDP script runs' ends_with 0
    check 'its replicas are equal' grep -q '1 of 2: equal weights' out
else
    echo 'skipped: no PyTorch here to run a DDP script with'
fi
finish
