# harness_invariant.sh -- what the tests of train.numerics invariant share: two small runs, and their comparison with the
# one of a single rank. Every row of a table is a layout: what it prints of losses, norms and weights must be that.
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
for ((i = 0; i < 60; i++)); do echo "Rank $((i * 7919 % 97)) adds what rank $((i * 31 % 53)) has, in pairs."; done >text.txt
"$lockstep" data prepare text.txt --out tokens --tokenizer char --val 0.1 >/dev/null || exit 1
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16, embd_dropout: 0.1, attn_dropout: 0.1, resid_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { steps: 5, global_batch: 32, seq_len: 12, seed: 5, numerics: invariant }
optim: { name: adamw, lr: 0.01, clip: 0.5, schedule: cosine, warmup: 2 }
log: { tensorboard: false, every: 1 }
YAML
# 1000 samples are 15 steps of 64 and a rest of 40
cat >mlp.yaml <<YAML
model: { name: mlp, dims: [20, 17, 5] }
data: { name: synthetic }
train: { epochs: 2, global_batch: 64, seed: 5, numerics: invariant }
optim: { name: adam, lr: 0.01, clip: 0.1 }
log: { tensorboard: false, every: 1 }
YAML

# Trains a recipe in a folder of its own: out, err and code as `train` leaves them.
go() { # recipe, ranks, options...
    local recipe=$1 ranks=$2
    shift 2
    rm -rf go
    timeout -k 5 100 "$lockstep" train "$recipe.yaml" --nproc-per-node "$ranks" --run.dir go "$@" >out 2>err
    code=$?
}
# What must not depend on the layout, of the run in a folder.
bits() { grep -oE '"(step|loss_metrics/[a-z_]+|grad_norm|lr|loss_scale)": [^,}]+' "$1/metrics.jsonl"; }
# The run of one rank, against which those with the same options after "--" are compared.
reference() { # recipe, options...
    go "$1" 1 "${@:2}"
    [ "$code" = 0 ] || { cat err; return 1; }
    bits go >want.bits
    final >want.final
    grep -q '^final step=' want.final && [ "$(wc -l <want.bits)" -ge 20 ]
}
is_the_same() { # recipe, ranks, options...
    go "$@"
    [ "$code" = 0 ] || { cat err; return 1; }
    diff want.final <(final) && diff want.bits <(bits go)
}

# The same on two nodes of so many ranks each, as two hosts would have them.
over_two_nodes() { # recipe, ranks per node, options...
    local recipe=$1 ranks=$2 port n
    shift 2
    rm -rf go code[01]
    [ -f secret ] || "$lockstep" secret new secret || return 1
    port=$(free_port)
    for n in 1 0; do
        { timeout -k 5 100 "$lockstep" run --nnodes 2 --node-rank $n --master-addr 127.0.0.1 --master-port "$port" --secret-file secret \
            --nproc-per-node "$ranks" -- "$lockstep" train "$recipe.yaml" --run.dir go "$@" >out$n 2>err$n; echo $? >code$n; } &
    done
    wait
    [ "$(cat code0)$(cat code1)" = 00 ] || { cat err0 err1; return 1; }
    diff want.final <(tail -1 out0) && diff want.bits <(bits go)
}

# --- layouts --------------------------------------------------------------------------------------------------------

ranks_of=(1 2 4 8)
stages=('0' '1' '2' '3' '3 --zero.copy rank')
transports=('--comm.transport shm' '--comm.transport tcp' '--ranks-as threads')
micros=(1 2 4)
# One copy per node needs memory that ranks share.
is_refused() { [ "$1" = 3 ] && [ "$2" = 1 ]; } # stage, transport: their indices
layout() { # indices
    printf '%s' "${ranks_of[$1]} --zero.stage ${stages[$2]} ${transports[$3]} --train.micro_batch ${micros[$4]}"
}
