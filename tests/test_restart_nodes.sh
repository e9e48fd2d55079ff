#!/bin/bash
# test_restart_nodes.sh -- a job on several nodes is started again: a rank is lost, a node is lost, and a node that comes
# later is taken into the next generation. The nodes are launchers on this machine that share its file system.
#
#   tests/test_restart_nodes.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
"$lockstep" secret new s >/dev/null || exit 1
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16, embd_dropout: 0.1, resid_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { steps: 14, global_batch: 24, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01, clip: 0.5, schedule: cosine, warmup: 4 }
log: { tensorboard: false, every: 1 }
YAML
node() { # rank, nodes, flags and program: one rank here
    local rank=$1 nodes=$2
    shift 2
    timeout -k 5 100 "$lockstep" run --nnodes "$nodes" --node-rank "$rank" --master-addr 127.0.0.1 --master-port "$port" \
        --secret-file s "$@" >"out$rank" 2>"err$rank"
    echo $? >"code$rank"
}
both() { # flags and program
    port=$(free_port)
    rm -f code? out? err?
    node 1 2 "$@" &
    node 0 2 "$@"
    wait
}
codes() { cat code? | tr '\n' ' '; }
is() { [ "$1" = "$2" ] || { echo "'$1', expected '$2'"; tail -n 40 err?; return 1; }; }
has() { grep -qE -- "$2" "$1" || { cat "$1"; return 1; }; }
steps_of() { sed -nE 's/^\{"step": ([0-9]+), .*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
all_steps() { seq -s ' ' 1 "$1" | sed 's/$/ /'; }
worlds() { sed -nE 's/.*"gen_start".*"world_size":([0-9]+).*/\1/p' "$1" | tr '\n' ' '; }

# --- the same nodes -----------------------------------------------------------------------------------------
both -- "$lockstep" train gpt.yaml --run.dir whole
want=$(tail -1 out0)
claim 'two nodes' is "$(codes)" '0 0 '
for stage in 0 3; do
    for rank in 0 1; do
        both --max-restarts 2 --events events.$stage.$rank -- "$lockstep" train gpt.yaml --zero.stage $stage --run.dir cut$stage$rank \
            --checkpoint.every 4 --inject kill@$rank:11
        claim "stage $stage, rank $rank is lost: both launchers end well" is "$(codes)" '0 0 '
        claim "stage $stage, rank $rank: the same end" is "$(tail -1 out0)" "$want"
        claim "stage $stage, rank $rank: from step 8" has out0 '^resuming step 8 of '
        claim "stage $stage, rank $rank: each step once" is "$(steps_of cut$stage$rank)" "$(all_steps 14)"
    done
done
claim 'node 1 says what follows, too' has err1 '  restart   : as generation 2 .* restart 1 of 2'
both --max-restarts 1 -- sh -c '[ $RANK = 1 ] && exec sleep 100; exit 3'
claim 'all restarts are used: both end' is "$(codes)" '3 82 '
both --max-restarts 3 -- "$lockstep" train gpt.yaml --run.dir nan --inject nan@1:3
claim 'numerics: not again, on both' has err0 'restart   : none: exit code 80'
claim '... and node 1' has err1 'restart   : none: exit code 80'

# --- snapshots in memory, of which each node has its own -------------------------------------------------------
in_memory() { # rank, options: one rank of two nodes
    local rank=$1
    shift
    LOCKSTEP_SNAPSHOT_DIR=$tmp/memory$rank node "$rank" 1:2 --rdzv-conf last_call_timeout=0.5 "$@"
}
both_in_memory() { # flags and program
    port=$(free_port)
    rm -f code? out? err?
    mkdir -p memory0 memory1
    in_memory 1 "$@" &
    in_memory 0 "$@"
    wait
}
nothing_stays() { [ -z "$(ls -A memory0 memory1 | grep lockstep)" ] || { find memory?; return 1; }; }
snapshots=("$lockstep" train gpt.yaml --checkpoint.every 4 --checkpoint.snapshot 1)
for stage in 0 3; do
    for rank in 0 1; do
        both_in_memory --max-restarts 2 -- "${snapshots[@]}" --zero.stage $stage --run.dir memory-$stage-$rank --inject kill@$rank:11
        claim "snapshots, stage $stage, rank $rank is lost: the same end" is "$(tail -1 out0)" "$want"
        claim "... from step 10" has out0 "^resuming step 10 of the snapshot in memory $tmp/memory0/.*-0/step-00000010, saved by 2 ranks"
        claim '... which both launchers say' eval 'has err0 "as generation 2 from step 10 in memory" && has err1 "as generation 2 from step 10 in memory"'
        claim '... each step once' is "$(steps_of memory-$stage-$rank)" "$(all_steps 14)"
        claim '... nothing stays in memory' nothing_stays
    done
done
for lost in 0 1; do
    both_in_memory -- "${snapshots[@]}" --run.dir lost-$lost --inject kill@$((1 - lost)):11
    claim 'both nodes have all files' is "$(ls memory?/lockstep-*/step-00000010/sharded | grep -c safetensors)" 4
    rm -r memory$lost
    both_in_memory -- "${snapshots[@]}" --run.dir lost-$lost --checkpoint.resume auto
    claim "the memory of node $lost is lost: from step 10" has out0 '^resuming step 10 of the snapshot in memory '
    claim '... the same end' is "$(tail -1 out0)" "$want"
    claim '... nothing stays' nothing_stays
done
# Node 1 dies whole, with its memory; node 0 goes on alone.
port=$(free_port)
rm -f code? out? err?
mkdir -p memory0 memory1
snapshots=("$lockstep" train gpt.yaml --train.steps 3000 --checkpoint.every 1000 --checkpoint.snapshot 1 --log.every 500 --run.dir whole-node)
(LOCKSTEP_SNAPSHOT_DIR=$tmp/memory1 exec "$lockstep" run --nnodes 1:2 --node-rank 1 --master-addr 127.0.0.1 --master-port "$port" --secret-file s \
    --max-restarts 2 -- "${snapshots[@]}" >out1 2>err1) &
lost=$!
in_memory 0 --max-restarts 2 --events events.node -- "${snapshots[@]}" &
until_true grep -qs '"step":100}' events.node
kill -KILL $lost
until_true grep -qs '"event":"detect"' events.node # the ranks of node 1 outlive their launcher by some ms, and without
rm -r memory1                                     # this folder they would end snapshots for all
wait
claim 'node 1 is lost with its memory: node 0 goes on alone' is "$(worlds events.node)" '2 1 '
claim '... from memory' has out0 '^resuming step [0-9]+ of the snapshot in memory '
taken_again() { awk -F '[:,}]' '/"event":"step"/ { step = $(NF - 1); if (/"gen":2/) { exit !(step >= last) } last = step }' events.node || { grep -m 1 -B 6 '"event":"step".*"gen":2\|"gen":2.*"event":"step"' events.node; grep resuming out0; return 1; }; }
claim '... at most one step is taken again' taken_again
claim '... and ends well' is "$(cat code0)" 0
claim '... each step once' is "$(steps_of whole-node)" "$(all_steps 3000)"
claim '... nothing stays' is "$(ls memory0)" ''

# --- a node is lost, and comes again ------------------------------------------------------------------------------
# Three nodes; the launcher of node 2 is killed in the first generation, and started again in the second.
port=$(free_port)
rm -f code? out? err?
elastic() { # node, more options
    local rank=$1
    shift
    node "$rank" 2:3 --max-restarts 3 --rdzv-conf last_call_timeout=2 "$@" -- "$lockstep" train gpt.yaml --run.dir elastic \
        --train.steps 3000 --checkpoint.every 100 --checkpoint.keep 2 --log.every 500
}
elastic 1 &
(exec timeout -k 5 100 "$lockstep" run --nnodes 2:3 --node-rank 2 --master-addr 127.0.0.1 --master-port "$port" --secret-file s --max-restarts 3 \
    --rdzv-conf last_call_timeout=2 -- "$lockstep" train gpt.yaml --run.dir elastic --train.steps 3000 --checkpoint.every 100 --checkpoint.keep 2 \
    --log.every 500 >out2 2>err2) &
lost=$!
elastic 0 --events events &
until_true grep -qs '"event":"ckpt_durable"' events
pkill -KILL -P $lost # the launcher; its rank dies with it
until_true grep -qs '"event":"ckpt_durable","gen":2' events
elastic 2
wait
claim 'the nodes that are left go on, and the third is taken in again' is "$(worlds events)" '3 2 3 '
claim '... all end well' is "$(codes)" '0 0 0 '
claim '... node 0 says why it stopped' has err0 'lockstep: generation 3 begins with 1 more node: stopping this one'
claim '... node 2 says that it waits' has err2 'node 2: the job has begun without it; waiting for the next generation'
claim '... each step once' is "$(steps_of elastic)" "$(all_steps 3000)"
claim '... the last line is one of three ranks' has elastic/checkpoints/step-00003000/manifest.json '"world_size":3'

# --- a stop on request while a node is missing -------------------------------------------------------------------
port=$(free_port)
for rank in 0 1; do
    "$lockstep" run --nnodes 2 --node-rank $rank --master-addr 127.0.0.1 --master-port "$port" --secret-file s --max-restarts 3 -- \
        sleep 100 >"out$rank" 2>"err$rank" &
    launcher[rank]=$!
done
both_sleep() { [ "$(pgrep -P "${launcher[0]},${launcher[1]}" sleep | wc -l)" = 2 ]; }
until_true both_sleep
kill -KILL "${launcher[1]}"
until_true grep -q 'as generation 2' err0
begin=$SECONDS
kill -TERM "${launcher[0]}"
wait "${launcher[0]}" 2>/dev/null
code=$?
claim 'SIGTERM ends a launcher that waits for a lost node' test $code = 143
claim '... at once' test $((SECONDS - begin)) -lt 30

# --- fewer than the least ------------------------------------------------------------------------------------------
port=$(free_port)
rm -f code? out? err?
node 0 2:3 --rdzv-conf join_timeout=1,last_call_timeout=1 -- true
claim 'too few nodes: named' is "$(codes)" '69 '
claim '... which are missing' has err0 '1 of 3 nodes joined within .* missing nodes 1, 2'
node 1 2:3 --rdzv-conf last_call_timeout=0.2 -- sh -c 'echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE' &
node 0 2:3 --rdzv-conf last_call_timeout=0.2 -- sh -c 'echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE'
wait
claim 'enough nodes begin without the third' is "$(cat out0 out1 | tr '\n' ' ')" '0/2 0/2 1/2 1/2 '
port=$(free_port)
rm -f code? out? err?
node 2 1:3 --rdzv-conf last_call_timeout=3 -- sh -c 'echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE' &
node 0 1:3 --rdzv-conf last_call_timeout=3 -- sh -c 'echo $GROUP_RANK/$GROUP_WORLD_SIZE $RANK/$WORLD_SIZE'
wait
claim 'the place of a missing node is closed' is "$(cat out0 out2 | tr '\n' ' ')" '0/2 0/2 1/2 1/2 '
claim 'last_call_timeout without MIN:MAX' eval 'node 0 2 --rdzv-conf last_call_timeout=3 -- true; has err0 "belongs to --nnodes MIN:MAX"'
claim 'MIN:MAX ranks on several nodes' eval 'node 0 2 -n 1:2 --max-restarts 1 -- true; has err0 "is for one machine"'
finish
