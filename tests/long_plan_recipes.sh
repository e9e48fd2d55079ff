#!/bin/bash
# long_plan_recipes.sh -- 20 plans of `lockstep plan`, each written as a recipe, predicted and run here: memory by class, calls and bytes of
# every rank are those of the prediction, and the mesh, stage and schedule those of the plan.
#
#   tests/long_plan_recipes.sh BUILD
. "$(dirname "$0")/harness_train.sh"
python3 -c 'import json' || { echo 'python3 is needed to read JSON'; exit 1; }
export LOCKSTEP_CALIBRATION=none
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
small='--hidden 64 --heads 4 --vocab 258 --seq 64'
declare -A model=([gpt2]="gpt2-124m --layers 4 $small" [llama]="llama3-8b --layers 4 --kv-heads 2 --ffn 192 $small"
    [moe]="mixtral-8x7b --layers 4 --kv-heads 4 --experts 4 --topk 2 --expert-ffn 96 $small")

# Model, ranks, and what is asked of the plan besides.
n=0
while read -r name ranks flags; do
    [ -n "$name" ] || continue
    n=$((n + 1))
    what="$name, $ranks ranks, $flags"
    rm -rf run plan.yaml
    # shellcheck disable=SC2086
    timeout -k 5 60 "$lockstep" plan ${model[$name]} --world "$ranks" --batch 16 $flags --write plan.yaml --json >plan.json 2>err
    code=$?
    claim "$what: a plan" ends_with 0
    timeout -k 5 300 "$lockstep" train plan.yaml -n "$ranks" --data.name whale.txt --data.tokenizer byte --train.steps 5 --train.eval_every 0 \
        --predict --run.dir run >out 2>err
    code=$?
    claim "$what: its recipe runs" ends_with 0
    timeout -k 5 60 "$lockstep" plan --check run --json >check.json 2>err
    code=$?
    claim "$what: it can be checked" ends_with 0
    claim "$what: every class of memory, call and byte is exact" python3 - "$ranks" <<'PY'
import json, sys
c = json.load(open('check.json'))
wrong = [x for x in c['terms'] if x['predicted'] != x['counted'] and not (x['at_most'] and x['counted'] <= x['predicted'])]
assert c['exact'] and not wrong and c['world_size'] == int(sys.argv[1]) and {x['rank'] for x in c['terms']} == set(range(c['world_size'])), wrong
PY
    claim "$what: it is the plan's layout" python3 - <<'PY'
import json, re
best = json.load(open('plan.json'))['plans'][0]
text = open('run/config.yaml').read()
keys = {k: re.search(r'(?ms)^%s:.*?^  %s: *"?([\w-]+)' % (s, k), text)[1] for s, k in (('parallel', 'tp'), ('parallel', 'pp'), ('parallel', 'cp'), ('zero', 'stage'), ('train', 'micro_batch'))}
for key, field in (('tp', 'tp'), ('pp', 'pp'), ('cp', 'cp'), ('stage', 'zero'), ('micro_batch', 'micro_batch')):
    assert int(keys[key]) == best[field] or (key == 'stage' and best['dp'] == 1), (key, keys, best)
PY
done <<'LIST'
gpt2 1 --topology h100-8
gpt2 2 --topology h100-8
gpt2 4 --topology ethernet-2 --objective memory
gpt2 8 --topology ethernet-2
gpt2 4 --topology a100-8 --tp 2 --zero 1
gpt2 4 --topology a100-8 --pp 2 --schedules gpipe
gpt2 8 --topology h100-8 --pp 4 --schedules 1f1b --objective memory
gpt2 4 --topology h100-8 --pp 2 --schedules interleaved --micro-batch 2
llama 1 --topology a100-8 --objective memory
llama 2 --topology h100-8 --zero 3
llama 4 --topology ethernet-2 --zero 2
llama 8 --topology ethernet-2 --objective memory
llama 4 --topology h100-8 --cp 2
llama 4 --topology h100-8 --tp 2 --pp 2 --schedules zb-h1
llama 8 --topology h100-8 --pp 2 --schedules zb-v --micro-batch 1
moe 1 --topology h100-8
moe 2 --topology h100-8 --ep 2
moe 4 --topology ethernet-2 --ep 2 --zero 1
moe 4 --topology a100-8 --objective memory
moe 8 --topology h100-8 --pp 2 --schedules zb-h2
LIST
claim '20 plans' test $n = 20
finish
