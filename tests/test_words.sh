#!/bin/bash
# Status names that need a whole job: what two ranks who disagree, or a stranger, get to see.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
job() { timeout 20 "$build/lockstep" run --nproc-per-node 2 -- sh -c "$1"; }
train="$build/lockstep train --data.name synthetic --train.steps 2 --run.name words"

claim 'ranks with different models: 78, config-mismatch' \
    fails_with 78 'error[config-mismatch]' job "exec $train --model.dims 64,\$((16 + RANK)),10"
claim 'both shapes are named' fails_with 78 '17' job "exec $train --model.dims 64,\$((16 + RANK)),10"
claim 'ranks with the same model get on' job "exec $train --model.dims 64,16,10"

# The secret comes down an inherited descriptor; rank 1 presents another one.
head -c 32 /dev/zero >wrong
claim 'a rank with a wrong secret: 77, auth-failed' fails_with 77 'auth-failed' \
    job "[ \$RANK = 0 ] || { exec 9<wrong; export LOCKSTEP_SECRET_FD=9; }; exec $train --model.dims 64,16,10"

# Asked to stop, a training saves and says that it may be queued again. It is asked once a step is done.
term() {
    local pid
    timeout 120 "$build/lockstep" run --nproc-per-node 2 --events events -- $train --train.steps 100000000 --model.dims 64,16,10 &
    pid=$!
    until grep -qs '"event":"step"' events; do kill -0 $pid || break; sleep 0.01; done
    kill -TERM $pid # timeout passes it on
    wait $pid
}
claim 'SIGTERM after a durable save: 75, preempted' fails_with 75 'error[preempted]' term
claim 'and the checkpoint is whole' "$build/lockstep" ckpt verify "$tmp"/runs/*/checkpoints/*/model.safetensors
finish
