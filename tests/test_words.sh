#!/bin/bash
# Code words that need a whole job: what two ranks who disagree, or a stranger, get to see.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
job() { timeout 20 "$build/lockstep" run --nproc-per-node 2 -- sh -c "$1"; }
train="$build/lockstep train --data.name synthetic --train.steps 2 --run.dir $tmp/run"

claim 'ranks with different models: 78, config-mismatch' \
    fails_with 78 'error[config-mismatch]' job "exec $train --model.dims 64,\$((16 + RANK)),10"
claim 'both shapes are named' fails_with 78 '17' job "exec $train --model.dims 64,\$((16 + RANK)),10"
claim 'ranks with the same model get on' job "exec $train --model.dims 64,16,10"

# The secret comes down an inherited descriptor; rank 1 presents another one.
head -c 32 /dev/zero >wrong
claim 'a rank with a wrong secret: 77, auth-failed' fails_with 77 'auth-failed' \
    job "[ \$RANK = 0 ] || { exec 9<wrong; export LOCKSTEP_SECRET_FD=9; }; exec $train --model.dims 64,16,10"
finish
