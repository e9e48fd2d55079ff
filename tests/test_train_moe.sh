#!/bin/bash
# test_train_moe.sh -- what a run with experts says of their load: tokens and drops of each expert, the busiest rank, what a layer
# costs (R142, R143, R145), and that each way of balancing lowers the largest load (R144).
#
#   tests/test_train_moe.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 200
cat >moe.yaml <<YAML
model: { name: moe, n_layer: 2, n_head: 2, d_model: 32, d_expert: 64, n_experts: 8, top_k: 2, seq_len: 32 }
data: { path: $tmp/tokens }
train: { steps: 6, global_batch: 8, seed: 1 }
optim: { name: adamw, lr: 2e-3, clip: 1.0 }
log: { tensorboard: false, every: 1 }
YAML
run() {
    local name=$1
    shift
    timeout -k 5 100 "$lockstep" train moe.yaml --run.dir "$name" "$@" >"$name.out" 2>err || { cat err; return 1; }
}
# Python over metrics.jsonl: m is the list of its lines.
check() { python3 -c "import json,sys; m=[json.loads(l) for l in open('$1/metrics.jsonl')]; sys.exit(0 if ($2) else 'found '+str($3))"; }

claim 'forced routing: a run' run forced -n 2 --parallel.ep 2 --moe.force_expert 1 --model.d_expert 1024
claim 'forced routing: experts 1 and 2 get all 256 tokens of a step, in each layer' check forced \
    "all(l['moe/chosen'] == [[0,256,256,0,0,0,0,0]]*2 and l['moe/max_load'] == 4 for l in m)" "m[0]['moe/chosen']"
claim 'forced routing: rank 0 has both, and is the busiest' check forced \
    "all(len(l['moe/busy_ms']) == 2 for l in m) and sum(l['moe/busy_ms'][0] for l in m) > 1.2*sum(l['moe/busy_ms'][1] for l in m)" \
    "[l['moe/busy_ms'] for l in m]"
claim 'forced routing: the log has the tokens of each expert' grep -qxF 'experts of layer 0: tokens 0 256 256 0 0 0 0 0' forced.out
claim 'forced routing: the log names the busiest rank' grep -qE '^experts: largest load 4.00x the mean .*; busiest rank 0, 1\.[0-9]+x the mean \(' forced.out
claim 'the last expert, and the first after it' run last --moe.force_expert 7 --train.steps 1
claim 'experts 7 and 0' check last "m[0]['moe/chosen'] == [[256,0,0,0,0,0,0,256]]*2" "m[0]['moe/chosen']"
claim 'a capacity: a run' run full --moe.force_expert 0 --moe.capacity_factor 1 --train.steps 1
claim 'a capacity of 8 of 32 tokens: 64 of 256 stay, the log counts the others by expert' \
    grep -qF 'experts of layer 0: tokens 256 (192 dropped) 256 (192 dropped) 0 (0 dropped)' full.out
claim 'a capacity: drops in metrics.jsonl' check full "m[0]['moe/dropped'] == [[192,192,0,0,0,0,0,0]]*2 and m[0]['moe/dropped_share'] == 0.75" \
    "m[0]['moe/dropped']"
claim 'no capacity, no drop' check forced "all(sum(map(sum, l['moe/dropped'])) == 0 for l in m)" "m[0]['moe/dropped']"
claim 'many experts: the log has the most chosen ones' run many --model.n_experts 32 --model.top_k 1 --moe.force_expert 9 --train.steps 1
claim 'many experts: which' grep -qF 'experts of layer 0: tokens 256 of 9, 0 of 0, 0 of 1' many.out
claim 'an expert that is not there is refused' bash -c "! '$lockstep' train moe.yaml --moe.force_expert 8 2>err && grep -qF 'moe.force_expert is 8; expected -1 (none) to 7' err"
claim 'what a layer costs, and its bound, stand at the top' grep -qE '^experts: bound by the network on a link below [0-9.]+ GB/s, else by computing; here \(memory, ' forced.out
claim 'with all experts here nothing is sent' grep -qE '^experts: per rank, layer and step, in balance: .* MFLOP.*, nothing sent \(ep 1\)$' last.out

# Ranks that have parts of sequences, of tokens or of experts count what one rank counts.
claim 'one rank: losses, loads, drops' run one --moe.capacity_factor 1 --moe.aux_loss 0.1 --moe.z_loss 0.1 --train.steps 2
for layout in 'cp 2' 'ep 2' 'tp 2' 'dp 2'; do
    claim "two ranks, $layout: a run" run "$layout" -n 2 "--parallel.${layout% 2}" 2 --moe.capacity_factor 1 --moe.aux_loss 0.1 \
        --moe.z_loss 0.1 --train.steps 2
    claim "two ranks, $layout: as one rank" python3 -c "
import json
a, b = ([json.loads(l) for l in open(f + '/metrics.jsonl')][0] for f in ('one', '$layout'))
assert a['moe/chosen'] == b['moe/chosen'] and a['moe/dropped'] == b['moe/dropped'], (a, b)
for k in 'moe/aux_loss', 'moe/z_loss', 'moe/dropped_share', 'moe/max_load': assert abs(a[k] - b[k]) < 1e-6 * abs(a[k]), (k, a[k], b[k])"
done

# A killed rank: the job starts again from a checkpoint that was written beside training, or a snapshot in memory.
again() {
    local name=$1
    shift
    timeout -k 5 100 "$lockstep" run -n 4 --max-restarts 1 -- "$lockstep" train moe.yaml --run.dir "$name" --parallel.ep 2 \
        --moe.bias_rate 0.01 --train.steps 8 "$@" >"$name.out" 2>err || { cat err; return 1; }
}
claim 'undisturbed' run undisturbed -n 4 --parallel.ep 2 --moe.bias_rate 0.01 --train.steps 8
while read -r name killed options; do
    # shellcheck disable=SC2086
    claim "$name: rank $killed is killed, and the job starts again" again "$name" --inject "kill@$killed" $options
    claim "$name: it did" grep -qE '^resuming step [1-6] ' "$name.out"
    claim "$name: and ends as undisturbed" test "$(tail -1 "$name.out")" = "$(tail -1 undisturbed.out)"
done <<'ROWS'
async 3:7 --checkpoint.every 2 --checkpoint.async true
async-stage2 1:7 --checkpoint.every 2 --checkpoint.async true --zero.stage 2
snapshot 2:6 --checkpoint.every 100 --checkpoint.snapshot 1
snapshot-stage1 0:6 --checkpoint.every 100 --checkpoint.snapshot 1 --zero.stage 1 --zero.hsdp 2
ROWS

# The mean of the largest load over the last ten steps.
late='sum(l["moe/max_load"] for l in m[-10:])/10'
load() { python3 -c "import json; m=[json.loads(l) for l in open('$1/metrics.jsonl')]; print($late)"; }
claim 'training without balance' run plain --train.steps 60
claim 'training with the balancing loss' run aux --train.steps 60 --moe.aux_loss 0.1
claim 'training with the balancing bias' run bias --train.steps 60 --moe.bias_rate 0.01
echo "largest load over the mean, steps 51 to 60: plain $(load plain), balancing loss $(load aux), bias $(load bias)"
lower() { python3 -c "import sys; sys.exit(not $(load "$1") < $(load plain) - 0.25)"; }
claim 'the balancing loss lowers the largest load' lower aux
claim 'the balancing bias lowers the largest load' lower bias
finish
