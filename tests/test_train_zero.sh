#!/bin/bash
# test_train_zero.sh -- zero.stage as a user meets it: the same model as without, in float and in bf16, on any number of
# ranks and over wires; the same checkpoints and samples on the way; and a share of the memory.
#
#   tests/test_train_zero.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 12, global_batch: 12, micro_batch: 2, eval_every: 6, eval_batches: 2, sample_every: 4, sample_tokens: 20 }
optim: { name: adamw, lr: 3e-3, clip: 0.5 }
checkpoint: { every: 5, keep: 9, consolidate: always }
YAML
have_python() { python3 -c 'import json' 2>/dev/null; }

# What the weights have to do with, of a run's output.
learned() { grep -aE '^(step=|final|sample|\|)' out && grep -aoE '^step: .* grad_norm: +[0-9.]+' out; }

stage=1 sums=
# Two runs with the same options, with and without: what they print and keep.
alike() { # ranks, options...
    local ranks=$1
    shift
    rm -rf whole shared
    train "$ranks" --run.dir whole "$@"
    ends_with 0 || return 1
    learned >whole.out
    train "$ranks" --run.dir shared --zero.stage $stage $sums "$@"
    ends_with 0 || return 1
    learned >shared.out
    diff whole.out shared.out && grep -q '^final step=12 ' shared.out || return 1
    for step in 5 10 12; do
        cmp {whole,shared}/checkpoints/step-$(printf %08d $step)/model.safetensors || return 1
    done
}

claim 'gpt2, f32, 2 ranks: the same output and files' alike 2
claim 'it says what it does' prints ', DDP with ZeRO stage 1$'
half() { # of what is kept for the optimizer: shards end at cache lines here; rank 0 has one of 257 tokens more
    local a b
    a=$(sed -E 's/.*"optim": \{[^}]*"peak": ([0-9]+).*/\1/' whole/memory.json)
    b=$(sed -E 's/.*"optim": \{[^}]*"peak": ([0-9]+).*/\1/' shared/memory.json)
    [ "$b" -gt 0 ] && [ $((2 * b)) = $((a + 8 * 32)) ] || { echo "$a $b"; return 1; }
}
claim 'and takes half of the memory for it' half
claim 'samples are among it' test "$(grep -ac '^sample' shared.out)" = 3
cp -r shared/checkpoints/step-00000012 of-two
claim 'what 2 ranks have saved of shards 4 read, into shards or not' alike 4 --train.micro_batch 1 --model.load of-two
claim 'and 3 in bf16' alike 3 --train.dtype bf16 --model.load of-two
claim 'gpt2, bf16, 2 ranks' alike 2 --train.dtype bf16
claim 'gpt2, bf16, 3 ranks' alike 3 --train.dtype bf16
claim 'llama, bf16, 2 ranks, buckets of 4 KiB' alike 2 --train.dtype bf16 --model.name llama --ddp.bucket_cap 4KiB --ddp.first_bucket 1KiB
claim 'llama, f32, 4 ranks' alike 4 --train.micro_batch 1 --model.name llama
claim 'over wires, 2 ranks' alike 2 --train.dtype bf16 --comm.transport tcp
claim 'where a thread moves the bytes' alike 2 --train.dtype bf16 --comm.progress thread

as_planned() {
    python3 - <<'PY'
import json
whole, shared = (json.load(open(f'{run}/memory.json')) for run in ('whole', 'shared'))
for name, k in shared.items(): assert k['planned'] == k['peak'], (name, k)
assert shared['param']['peak'] == whole['param']['peak'], (shared, whole)
# 2 states of 4 bytes per element: tokens, positions, blocks, the last norm
elements = 257 * 32 + 32 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
assert whole['optim']['peak'] == 8 * elements, (whole['optim'], elements)
assert shared['optim']['peak'] == 4 * (elements + 32), (shared['optim'], elements)
PY
}
claim 'gpt2, f32, 2 ranks, once more' alike 2
if have_python; then claim 'memory.json: planned to the byte; half of the state' as_planned; fi

rm -rf shared named
train 2 --run.dir named --parallel.dp_strategy fsdp
learned >named.out
claim 'by the name of the strategy: the same output' diff shared.out named.out
claim 'and its configuration says which stage that is' grep -qx '  stage: 1' named/config.yaml
claim 'which runs again' "$lockstep" train named/config.yaml -n 2 --run.dir again --train.steps 2
train 2 --parallel.dp_strategy ddp --zero.stage 1
claim 'another strategy than the stage means is refused' ends_with 78
claim 'by the names of both keys' says 'parallel.dp_strategy is ddp, but zero.stage is 1'

# Where the sums of micro-batches are added up before ranks are, they round as without shards.
for stage in 2 3 '3 --zero.copy rank' '3 --zero.copy rank --zero.prefetch 0 --zero.reshard never'; do
    sums='--zero.reduce last'
    claim "stage $stage, the last backward reduced: f32, 2 ranks" alike 2
    claim "stage $stage, the last backward reduced: bf16, 3 ranks" alike 3 --train.dtype bf16
    sums=
    claim "stage $stage, one micro-batch: f32, 3 ranks" alike 3 --train.micro_batch 4
    claim "stage $stage, one micro-batch: bf16, 2 ranks" alike 2 --train.dtype bf16 --train.micro_batch 6
    claim "stage $stage, one micro-batch: llama, bf16, 3 ranks, buckets of 4 KiB" \
        alike 3 --train.dtype bf16 --train.micro_batch 4 --model.name llama --ddp.bucket_cap 4KiB
    claim "stage $stage, recomputed, where a thread moves the bytes" \
        alike 2 --train.micro_batch 6 --train.recompute full --comm.progress thread
    claim 'it says what it does' prints ", DDP with ZeRO stage ${stage%% *}\$"
done
for stage in 1 '2 --zero.reduce last' '3 --zero.reduce last' '3 --zero.reduce last --zero.copy rank'; do
    kind=$stage
    stage="$stage --zero.hsdp 2"
    claim "two sets of shards, stage $kind: f32, 4 ranks" alike 4 --train.micro_batch 1
    claim "two sets of shards, stage $kind: bf16, 4 ranks" alike 4 --train.micro_batch 1 --train.dtype bf16
done
for stage in 2 '3 --zero.copy rank'; do
    claim "stage $stage over wires, 2 ranks" alike 2 --train.micro_batch 6 --comm.transport tcp
done
# Two launchers, of two ranks each, that are two nodes.
ranks_of=(2 2) # how many ranks they start
two_nodes() { # options...
    local port r pid=()
    code=0
    port=$(free_port)
    [ -e secret ] || (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >secret)
    rm -rf apart
    for r in 0 1; do
        timeout -k 5 60 "$lockstep" run --nnodes 2 --node-rank $r --nproc-per-node ${ranks_of[r]} --master-addr 127.0.0.1 \
            --master-port "$port" --secret-file secret -- "$lockstep" train base.yaml --train.micro_batch 1 \
            --run.dir apart "$@" >"out$r" 2>"err$r" &
        pid[r]=$!
    done
    for r in 1 0; do wait "${pid[r]}" || code=$?; done # the first node counts
    cp out0 out && cat err0 err1 >err
    return $code
}
near() { # of the loss of one node's four ranks without shards, to 1e-6
    two_nodes "$@" || { cat err; return 1; }
    awk -v a="$(printf '%.12f' "$(loss reference.out)")" -v b="$(printf '%.12f' "$(loss)")" \
        'BEGIN { d = a - b; exit !(a > 0 && d < 1e-6 * a && d > -1e-6 * a) }'
}
train 4 --train.micro_batch 1
cp out reference.out
claim 'one set of shards on each of two nodes, one copy of the parameters on each' near --zero.stage 3 --zero.hsdp 2
claim 'with sums of the last backward' near --zero.stage 3 --zero.hsdp 2 --zero.reduce last
claim 'where each rank gathers' near --zero.stage 3 --zero.hsdp 2 --zero.copy rank
claim 'stage 1' near --zero.stage 1 --zero.hsdp 2
# Sums of own rows lie beside all gradients where nodes do not map each other's memory: 4 bytes of each half of a row.
by_unit() {
    python3 - <<'PY'
import json
for name, kind in json.load(open('apart/memory.json')).items():
    if name == 'total': continue
    assert kind['planned'] == kind['peak'], (name, kind)
    for unit, (planned, peak) in kind['units'].items(): assert planned == peak, (name, unit, planned, peak)
    if name == 'grad': assert kind['units']['h.0'][0] == 6 * (12 * 32 * 32 + 13 * 32), kind
PY
}
if have_python; then claim 'memory.json has the plan of this node, for each unit' by_unit; fi
three_on_each() {
    ranks_of=(3 3)
    near --zero.stage 3 --zero.reduce last
}
by_node='--zero.stage 3 --zero.reduce last' by_stage_2='--zero.stage 2 --zero.reduce last'
claim 'one set of shards over two nodes, one copy of the parameters on each' near --zero.stage 3
if have_python; then
    planned() { python3 -c 'import json; m = json.load(open("apart/memory.json")); assert all(k["planned"] == k["peak"] for k in m.values()), m'; }
    claim 'with memory as planned' planned
fi
# What two runs on two nodes print and save.
on_nodes_alike() { # options of one, options of the other, options of both
    local a=$1 b=$2
    shift 2
    two_nodes $a "$@" || { cat err; return 1; }
    rm -rf whole && mv apart whole && learned >whole.out
    two_nodes $b "$@" || { cat err; return 1; }
    learned >shared.out
    diff whole.out shared.out && grep -q '^final step=12 ' shared.out || return 1
    for step in 5 10 12; do
        cmp {whole,apart}/checkpoints/step-$(printf %08d $step)/model.safetensors || return 1
    done
}
claim 'the same output and files as where each rank gathers: f32' \
    on_nodes_alike '--zero.stage 3 --zero.copy rank' '--zero.stage 3'
claim 'bf16' on_nodes_alike '--zero.stage 3 --zero.copy rank' '--zero.stage 3' --train.dtype bf16
claim 'as where each rank has all, with sums of the last backward: f32' on_nodes_alike "$by_stage_2" "$by_node"
claim 'bf16, llama, where a thread moves the bytes' \
    on_nodes_alike "$by_stage_2" "$by_node" --train.dtype bf16 --model.name llama --comm.progress thread
claim 'three ranks on each' three_on_each
ranks_of=(2 1)
two_nodes --zero.stage 3
claim 'nodes with different numbers of ranks are refused' ends_with 78
claim 'with the numbers and what works' says \
    'node 0 has 2 ranks and node 1 has 1: expected the same number of ranks on every node, or zero.copy rank'
ranks_of=(2 2)
two_nodes --zero.stage 3 --comm.transport tcp
claim 'where the ranks of a node do not map each other, too' ends_with 78
claim 'with that reason' says "at once: these ranks do not map each other's memory"
two_nodes --zero.stage 3 --inject kill@3:5
claim 'a rank that dies: exit 82' ends_with 82
claim 'and its rank and step' says 'error[rank-died] gen=1 step=5 rank=3 '
train 2 --zero.stage 3 --comm.transport tcp
claim 'one copy of the parameters needs memory that all ranks map' ends_with 78
claim 'with the reason' says "these ranks do not map each other's memory"
claim 'and what works' says 'zero.copy rank, LS_ZERO_COPY_RANK, needs no shared memory'
train 2 --zero.stage 3 --train.pack_weights always
claim 'a second form of the one copy is refused' ends_with 78
claim 'by name, too' says 'train.pack_weights always with zero.stage 3'
stage='3 --zero.copy rank' sums='--zero.reduce last'
claim 'where forwards gather values, ranks with fewer samples of an evaluation gather as often' \
    alike 3 --train.micro_batch 1 --train.eval_batches 0
gather='--zero.stage 3 --zero.copy rank'
train 3 $gather --inject nan@1:5
claim 'a loss that is not finite, where forwards gather values: exit 80' ends_with 80
claim 'and its rank and step' says 'the loss of rank 1 in step 5 is not finite; no weight was changed by this step'
train 3 $gather --optim.lr 1e30 --optim.clip 0
claim 'weights that are not finite: exit 80' ends_with 80
claim 'and where that began' says 'is not finite: it began with the '

# Gradients as bf16 on the wire: a step sends two bytes less for each element of another rank's rows. Stages 2 and 3 have
# a bucket for each unit, and those of positions and of the last norm are too short to be rounded.
narrow() { # bytes less, stage and its keys
    local less=$1 wide narrowed
    shift
    rm -rf wide narrow
    train 2 --run.dir wide --comm.transport tcp --train.micro_batch 6 --zero.stage $1 && ends_with 0 || return 1
    train 2 --run.dir narrow --comm.transport tcp --train.micro_batch 6 --zero.stage $1 --comm.wire bf16 && ends_with 0 || return 1
    wide=$(grep -o '"comm/bytes": [0-9]*' wide/metrics.jsonl | tail -1)
    narrowed=$(grep -o '"comm/bytes": [0-9]*' narrow/metrics.jsonl | tail -1)
    [ $((${wide##* } - ${narrowed##* })) = "$less" ] || { echo "$wide $narrowed"; return 1; }
}
blocks=$((2 * (12 * 32 * 32 + 13 * 32))) tokens=$((128 * 32))
claim 'stage 1, gradients as bf16 on the wire: half of their bytes' narrow $((blocks + 2 * tokens + 32 * 32 + 2 * 32)) 1
claim 'stage 2, gradients as bf16 on the wire: half of their bytes' narrow $((blocks + 2 * tokens)) 2
final >two
claim 'stage 3, gradients as bf16 on the wire: half of their bytes' narrow $((blocks + 2 * tokens)) '3 --zero.copy rank'
claim 'and the same weights as in stage 2' test "$(final)" = "$(cat two)"
finish
