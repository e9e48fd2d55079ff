#!/bin/bash
# test_train_memory.sh -- memory as a user meets it: a table before anything starts, a refusal that says what would fit,
# and what a run leaves behind about it.
#
#   tests/test_train_memory.sh BUILD
. "$(dirname "$0")/harness_train.sh"
cat >base.yaml <<YAML
model: { dims: [20, 30, 7] }
data: { name: synthetic }
train: { steps: 3, global_batch: 32 }
YAML
have_python() { python3 -c 'import json' 2>/dev/null; }

train 2 --dry-run
claim 'a dry run ends with 0' ends_with 0
claim 'it says what a rank takes' prints '^activations +[0-9]+ +[0-9.]+$'
claim 'and all of them' prints '^2 ranks: [0-9.]+ MiB of [0-9.]+ MiB available$'
claim 'and what its units hold' prints '^memory per unit, bytes:$'
claim 'neighbours alike in one line, and what no unit holds in the last' prints '^no unit( +[0-9]+){6}$'
claim 'and starts nothing' test ! -e runs

train 2 --dry-run --memory.limit 512KiB
claim 'a dry run of what does not fit ends with 0 all the same' ends_with 0
claim 'and says so, with what would fit' prints '^2 ranks: [0-9.]+ MiB of 0.50 MiB available: does not fit; neither recompute nor'

train 2 --memory.limit 512KiB
claim 'what does not fit ends with 71' ends_with 71
claim 'before a rank starts, in one line' test "$(wc -l <err)" = 1
claim 'with need and limit' grep -qE 'error\[no-memory\]: 2 ranks on this machine need [0-9.]+ MiB, but 0\.5 MiB are available' err

for stage in 1 2 3 '3 --zero.copy rank'; do # a layer of 36 MiB
    train 2 --memory.limit 20MiB --model.dims 3000,3000,10 --zero.stage $stage --run.dir large
    claim "stage $stage, a layer that does not fit: exit 71" ends_with 71
    claim "stage $stage, a layer that does not fit: with need and limit" \
        grep -qE 'error\[no-memory\]: 2 ranks on this machine need [0-9.]+ MiB, but 20\.0 MiB are available' err
    claim "stage $stage, a layer that does not fit: before a rank starts, in one line" test "$(wc -l <err)" = 1
    claim "stage $stage, a layer that does not fit: no run folder" test ! -e large
done

train 2 --memory.limit 512KiB --memory.check false --run.dir run
claim 'it can be started all the same' ends_with 0
as_planned() {
    python3 - <<'PY'
import json
kinds = json.load(open('run/memory.json'))
assert set(kinds) == {'param', 'grad', 'optim', 'act', 'comm', 'data', 'ckpt', 'total'}, kinds
for name, k in kinds.items(): assert k['planned'] == k['peak'], (name, k)
assert kinds['total']['peak'] == sum(k['peak'] for n, k in kinds.items() if n != 'total')
for name, k in kinds.items():
    if name == 'total': continue
    units = k['units'].values()
    assert k['planned'] == sum(u[0] for u in units) and k['peak'] == sum(u[1] for u in units), (name, k)
    assert all(planned == peak for planned, peak in units), (name, k)
# layers of an MLP [20, 30, 7], weights and biases in float
held = [u[0] for n, u in kinds['param']['units'].items() if n and n != 'root']
assert held == [4 * (20 * 30 + 30), 4 * (30 * 7 + 7)], held
PY
}
if have_python; then claim 'memory.json: the plan was right, to the byte' as_planned; fi
# --- pipeline stages that fit -----------------------------------------------------------------------------------
# A head of 2048 columns: the shortest step has four of six layers in the first stage, which takes 10.5 MiB; three take 9.1.
seq 1 4000 >numbers.txt
cat >stages.yaml <<YAML
model: { name: gpt2, n_layer: 6, n_head: 4, d_model: 64, vocab_size: 2048, seq_len: 64, tied: false }
data: { name: numbers.txt, tokenizer: char }
train: { steps: 3, global_batch: 8, micro_batch: 1, seed: 7 }
parallel: { pp: 2 }
YAML
said='^pipeline: 3,3 layers per stage, the fastest cut of whole layers that fits memory\.limit: a rank needs up to 9\.1 MiB, and with the shortest step 10\.5 MiB; 9\.5 MiB per rank are allowed$'
staged() { # flags...: exit status, and out
    timeout -k 5 100 "$lockstep" train stages.yaml -n 2 "$@" >out 2>err
    code=$?
}
staged --dry-run --memory.limit 19MiB
claim 'stages: a dry run says that the cut is another one' prints "$said"
claim 'stages: and plans that one' prints '^2 ranks: 18\.27 MiB of 19\.00 MiB available$'
staged --dry-run --memory.limit 21MiB
claim 'stages: not where the shortest step fits' prints '^2 ranks: 20\.94 MiB of 21\.00 MiB available$'
claim 'stages: of which there is nothing to say' awk '/^pipeline/ { n++ } END { exit n > 0 }' out
staged --memory.limit 21MiB --run.dir shortest
shortest=$(grep -o 'digest=.*' out)
for ranks_as in processes threads; do
    staged --memory.limit 19MiB --ranks-as $ranks_as --run.dir "fits-$ranks_as"
    claim "stages, $ranks_as: a run that fits with another cut is not refused" ends_with 0
    claim "stages, $ranks_as: its log says so" prints "$said"
    claim "stages, $ranks_as: and the model is the same" test "$(grep -o 'digest=.*' out)" = "$shortest"
    if have_python; then
        claim "stages, $ranks_as: with the memory that was planned" python3 -c "
import json
kinds = json.load(open('fits-$ranks_as/memory.json'))
assert all(k['planned'] == k['peak'] for k in kinds.values()) and kinds['total']['peak'] <= 9.5 * 2**20, kinds"
    fi
done
timeout 100 "$lockstep" explain stages.yaml -n 2 --memory.limit 19MiB --json >out
claim 'stages: `explain` knows the cut' grep -q '"total":9577664' <(tr -d ' \n' <out)
staged --memory.limit 18MiB
claim 'stages: none fits: exit 71' ends_with 71
claim 'stages: with what the shortest step needs' grep -qE 'error\[no-memory\]: 2 ranks on this machine need 20\.9 MiB, but 18\.0 MiB' err

# --- a rank of several nodes -----------------------------------------------------------------------
# What all nodes gather is packed in a place of its own: a rank needs more than on one node, and checks before it joins.
large=(--model.dims 3000,3000,10 --zero.stage 1)
train 4 --dry-run "${large[@]}"
alone=$(awk '$1 == "total" && !n++ { print $2 }' out)
"$lockstep" secret new secret >secret.out
LOCKSTEP_SECRET_FILE=secret RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 timeout 60 \
    "$lockstep" train base.yaml "${large[@]}" --memory.limit "$alone" --run.dir nodes >out 2>err
claim 'over two nodes a rank needs more than on one' grep -qE 'error\[no-memory\]: 1 rank on this machine needs [0-9.]+ MiB, but [0-9.]+ MiB are available' err
claim 'by what is packed' awk -v alone="$alone" '/no-memory/ { sub(/.*needs /, ""); more = $1 * 1048576 > alone + 3000 * 3000 * 4 } END { exit !more }' err
finish
