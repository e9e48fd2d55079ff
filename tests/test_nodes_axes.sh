#!/bin/bash
# test_nodes_axes.sh -- two launchers, which are two nodes of two or four ranks each: pipelines, tensor parallel layers and replicas across
# them train the model that one rank trains.
#
#   tests/test_nodes_axes.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 4, n_head: 4, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 8, global_batch: 8, micro_batch: 1, eval_every: 8, eval_batches: 2 }
optim: { name: adamw, lr: 3e-3, clip: 0.5 }
YAML
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
two_nodes() { # ranks per node, options...
    local per=$1 port r pid=()
    shift
    code=0
    port=$(free_port)
    rm -rf apart
    for r in 0 1; do
        timeout -k 5 100 "$lockstep" run --nnodes 2 --node-rank $r --nproc-per-node "$per" --master-addr 127.0.0.1 --master-port "$port" \
            --secret-file secret -- "$lockstep" train base.yaml --run.dir apart "$@" >"out$r" 2>"err$r" &
        pid[r]=$!
    done
    for r in 1 0; do wait "${pid[r]}" || code=$?; done
    cp out0 out && cat err0 err1 >err
    return $code
}
loss_of() { sed -nE 's/^final step=8 loss=(\S+) .*/\1/p' "$1"; }
near() { # ranks per node, options...: the loss of one rank, to 1e-5
    two_nodes "$@" || { cat out err; return 1; }
    python3 -c 'import sys; a, b = map(float.fromhex, sys.argv[1:]); sys.exit(not abs(a - b) <= 1e-5 * b)' "$(loss_of out)" "$(loss_of reference.out)" ||
        { cat out; return 1; }
}
train 1 --run.dir alone
cp out reference.out
claim 'one rank' test -n "$(loss_of reference.out)"
claim 'two nodes of two ranks: stages across, layers within' near 2 --parallel.pp 2 --parallel.tp 2
claim 'two nodes of two ranks: replicas across, stages within' near 2 --parallel.pp 2
claim 'two nodes of two ranks: replicas across, layers within, ZeRO-1' near 2 --parallel.tp 2 --zero.stage 1
claim 'two nodes of two ranks: a zero-bubble schedule' near 2 --parallel.pp 2 --parallel.tp 2 --pipeline.schedule zb-v
claim 'two nodes of four ranks: dp x tp x pp' near 4 --parallel.pp 2 --parallel.tp 2
claim 'two nodes of four ranks: dp x tp x pp with ZeRO-2' near 4 --parallel.pp 2 --parallel.tp 2 --zero.stage 2
claim 'two nodes of four ranks: cp x tp x pp' near 4 --parallel.pp 2 --parallel.tp 2 --parallel.cp 2
finish
