#!/bin/bash
# test_train_order.sh -- parallel.order and parallel.placement: which ranks are neighbours changes where bytes travel, and not one bit
# of the model; every place that says which rank is where follows it.
#
#   tests/test_train_order.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >gpt2.yaml <<YAML
model: { name: gpt2, n_layer: 4, n_head: 4, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 8, micro_batch: 2, eval_every: 0 }
optim: { name: adamw }
YAML
run() { # folder, flags...
    rm -rf "$1"
    timeout -k 5 60 "$lockstep" train gpt2.yaml --run.dir "$@" >out 2>err
    code=$?
}
explain() {
    timeout -k 5 60 "$lockstep" explain "$@" >out 2>err
    code=$?
}
end() { sed -n '$s/^final //p' out; }

# --- two axes: the same ranks of an axis add up the same numbers, wherever they are
for axes in 'tp 2' 'pp 2' 'tp 2 --zero.stage 3' 'pp 2 --zero.stage 1 --zero.hsdp 2 --pipeline.schedule zb-h1'; do
    ranks=4 slow=${axes%% *}
    [[ $axes == *hsdp* ]] && ranks=8
    # shellcheck disable=SC2086
    run usual -n $ranks --parallel.$axes
    usual=$(end)
    # shellcheck disable=SC2086
    [ $slow = pp ] && other=dp-pp || other=$slow-dp
    # shellcheck disable=SC2086
    run other -n $ranks --parallel.$axes --parallel.order $other
    claim "$axes, order $other: it ends with 0" ends_with 0
    claim "$axes, order $other: the bits of the usual order" test -n "$usual" -a "$(end)" = "$usual"
    explain other
    claim "$axes, order $other: the counters are those of the plan" ends_with 0
done
# gradients are summed over dp x cp, in the order of the ranks: other ranks, other roundings
close() { python3 -c 'import sys; a, b = (float.fromhex(x.split("loss=")[1].split()[0]) for x in sys.argv[1:]); assert abs(a - b) < 1e-6 and a != b, (a, b)' "$@"; }
run usual -n 4 --parallel.cp 2
usual=$(end)
run other -n 4 --parallel.cp 2 --parallel.order cp-dp
claim 'cp 2, order cp-dp: losses to rounding' close "$usual" "$(end)"
run first -n 4 --parallel.tp 2 --parallel.order tp-dp --checkpoint.every 2
explain first
claim 'explain: axes, the slowest first' test "$(grep -oE '^  (tp|dp) +2  [0-9], [0-9]' out | tr -s ' ')" = ' tp 2 0, 2
 dp 2 0, 1'
claim 'explain: where ranks are' prints '^  node 0      0 dp0 tp0  \|   1 dp1 tp0  \|   2 dp0 tp1  \|   3 dp1 tp1$'
explain 3d gpt2.yaml -n 4 --parallel.tp 2 --parallel.order tp-dp
claim 'explain 3d: the order' prints 'along the axes of parallel.order, here tp-dp, of which'
explain pp gpt2.yaml -n 4 --parallel.pp 2 --parallel.order dp-pp
claim 'explain pp: the first ranks of stages are neighbours' test "$(sed -nE 's/^ +([0-9]+) +[0-9,]+ +[0-9,]+ +[0-9,]+$/\1/p' out | tr '\n' ' ')" = '0 1 '

# --- checkpoints know no order
run whole -n 4 --parallel.tp 2
whole=$(end)
run again -n 4 --parallel.tp 2 --checkpoint.resume "$(echo first/checkpoints/*2)"
claim 'a checkpoint of another order is read: steps 3 and 4 remain' test "$(grep -oE '^step: +[0-9]+' out | tr -dc '0-9\n' | paste -sd' ')" = '3 4'
claim 'and goes on to the same end' test "$(end)" = "$whole"

# --- replicas are compared with replicas
run broken -n 4 --parallel.tp 2 --parallel.order tp-dp --inject diverge@1:2
claim 'ranks 0 and 1 are replicas' ends_with 81
claim 'and which differs is said' says 'on rank 1, unlike rank 0'
run broken -n 8 --parallel.tp 2 --parallel.cp 2 --parallel.order cp-tp-dp --train.global_batch 8 --inject diverge@6:2
claim 'rank 6 is a replica of 2, 3 and 7' ends_with 81
claim 'the one of four that differs is named' says 'on rank 6. Every rank'

# --- the planner
timeout -k 5 60 "$lockstep" topo place gpt2.yaml -t ethernet-2 --ranks 8 --parallel.tp 2 --parallel.order tp-dp >out 2>err
claim 'topo place judges the order of the configuration' prints '^the order of the runtime \(parallel.order\), the slowest first: tp-dp$'
claim 'and has a better one' prints '^best +dp-tp '
timeout -k 5 60 "$lockstep" sim gpt2.yaml -t ethernet-2 --ranks 8 --parallel.tp 2 --parallel.order tp-dp >out 2>err
code=$?
claim 'sim has the ranks in this order' prints '^order of the axes, the slowest first: tp-dp$'

# --- parallel.placement auto: the order of topo place, on every node the same
on_nodes() { # nodes, ranks on each, flags...
    local nodes=$1 each=$2 port=$((20000 + RANDOM % 20000)) pids=() k
    shift 2
    rm -rf placed
    [ -e secret ] || "$lockstep" secret new secret
    for ((k = nodes - 1; k >= 0; k--)); do
        timeout -k 5 90 "$lockstep" run --nnodes "$nodes" --node-rank $k --nproc-per-node "$each" --master-addr 127.0.0.1 --master-port $port \
            --secret-file secret -- "$lockstep" train "$model" --run.dir placed "$@" >out.$k 2>err.$k &
        pids+=($!)
    done
    code=0
    for k in "${pids[@]}"; do wait "$k" || code=$?; done
    cp out.0 out
    cat err.* >err
}
best() { # nodes, ranks on each, flags...: the order that topo place finds for such nodes
    sed -e "s/^    count: 4/    count: $2/" -e "s/^    count: 2\$/    count: $1/" "$source_dir/recipes/clusters/ethernet-2.yaml" >nodes.yaml
    timeout -k 5 60 "$lockstep" topo place "$model" -t ./nodes.yaml "${@:3}" | sed -nE 's/^best +([a-z-]+) .*/\1/p'
}
placed() { python3 -c 'import sys; print(next(l.split(":")[1].split("#")[0].strip().strip("\"") for l in open("placed/config.yaml") if l.strip().startswith("order:")))'; }
model=gpt2.yaml axes=(--parallel.tp 2 --parallel.pp 2)
on_nodes 2 2 "${axes[@]}"
claim 'two nodes with the usual order' ends_with 0
usual=$(end)
on_nodes 2 2 "${axes[@]}" --parallel.placement auto
claim 'two nodes, placed' ends_with 0
claim 'the same bits' test -n "$usual" -a "$(end)" = "$usual"
claim 'in the order that topo place finds best' test "$(placed)" = "$(best 2 2 "${axes[@]}")"
explain placed
claim 'and the run is explained' ends_with 0
explain gpt2.yaml --parallel.tp 2 --parallel.cp 2 -n 4 --nodes 2 --parallel.placement auto
claim 'a configuration is placed as its run' test "$(grep -oE '^  (tp|cp|dp|pp) +2  ' out | tr -dc 'a-z\n' | paste -sd-)" = "$(best 2 2 --parallel.tp 2 --parallel.cp 2)"
# few tokens and wide matrices: what replicas sum is more than what ranks of tp exchange
cat >wide.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 4, d_model: 256, seq_len: 8 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 4, eval_every: 0 }
YAML
model=wide.yaml
on_nodes 2 2 --parallel.tp 2
usual=$(end)
on_nodes 2 2 --parallel.tp 2 --parallel.placement auto
claim 'replicas that share a node' ends_with 0
claim 'in another order than the usual one' test "$(placed)" = tp-dp -a "$(best 2 2 --parallel.tp 2)" = tp-dp
claim 'with the same bits' test -n "$usual" -a "$(end)" = "$usual"
explain placed
claim 'and that run is explained' prints '^  node 0      0 dp0 tp0  \|   1 dp1 tp0$'
explain wide.yaml --parallel.tp 2 -n 4 --nodes 2 --parallel.placement auto
claim 'its configuration is placed alike' prints '^  node 0      0 dp0 tp0  \|   1 dp1 tp0$'
explain gpt2.yaml -n 3 --train.global_batch 6 --nodes 2 --parallel.placement auto
claim 'nodes of different sizes' test "$(ends_with 78 && says 'parallel.placement auto: 3 ranks on 2 nodes: expected equally many on each' && echo yes)" = yes
timeout -k 5 60 "$lockstep" topo place gpt2.yaml -t ethernet-2 --ranks 8 --parallel.tp 2 --parallel.placement auto >out 2>err
code=$?
claim 'topo place compares all orders: it takes no auto' test "$(ends_with 78 && says 'parallel.placement auto: a plan has the ranks in an order that is given' && echo yes)" = yes
LOCKSTEP_SECRET_FILE=secret RANK=0 WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29999 timeout -k 5 60 \
    "$lockstep" train gpt2.yaml --train.global_batch 6 --parallel.placement auto >out 2>err
code=$?
claim 'a launcher that does not say how many ranks are on a node' test "$(ends_with 78 && says 'the launcher does not say how many ranks are on each node' && echo yes)" = yes
finish
