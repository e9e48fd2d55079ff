#!/bin/bash
# test_cmd_plan.sh -- lockstep plan MODEL --topology T: plans whose parts sum to the step, one JSON object with the figures of
# the text, the same to the byte with 1 and 2 threads and without bounds, questions, and errors that say what to do.
#
#   tests/test_cmd_plan.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
clusters=$source_dir/recipes/clusters
cd "$tmp" || exit 1
plan() { timeout -k 5 120 "$lockstep" plan "$@"; }
json() { python3 -c "import json,sys; j = json.load(open(sys.argv[1])); print($2)" "$1"; }

# --- a plan
plan llama3-70b --topology h100-8 --world 512 --batch 1024 --sensitivity --json >plan.json || exit 1
plan llama3-70b --topology h100-8 --world 512 --batch 1024 --sensitivity >plan.txt || exit 1
claim 'parts sum to the step, to 1e-12' test "$(json plan.json 'all(abs(sum(p["parts_s"].values()) - p["step_s"]) <= 1e-12 * p["step_s"] for p in j["plans"])')" = True
claim 'degrees are the world' test "$(json plan.json 'all(p["tp"] * p["pp"] * p["cp"] * p["dp"] == 512 for p in j["plans"])')" = True
claim 'the best comes first' test "$(json plan.json '[p["step_s"] for p in j["plans"]] == sorted(p["step_s"] for p in j["plans"]) and len(j["plans"])')" = 5
claim 'memory is that of the fullest stage, whose parts sum' test "$(json plan.json 'max(s["total"] for s in j["stages"]) == j["plans"][0]["memory_bytes"] and all(abs(sum(v for k, v in s.items() if k not in ("total", "layers", "in_flight")) - s["total"]) < 1 for s in j["stages"])')" = True
claim 'all layers are on some stage' test "$(json plan.json 'sum(s["layers"] for s in j["stages"])')" = 80
claim 'each layout is accounted for' test "$(json plan.json '(lambda c: c["layouts"] == c["evaluated"] + c["do_not_fit"] + c["bounded"] and c["bounded"] > 0)(j["certificate"])')" = True
claim 'each factorisation, too' test "$(json plan.json '(lambda c: c["factorisations"] == c["legal_factorisations"] + sum(c["refused"].values()))(j["certificate"])')" = True
claim 'no neighbour is better' test "$(json plan.json 'all(n["refused"] or not n["fits"] or n["plan"]["step_s"] >= j["plans"][0]["step_s"] for n in j["neighbours"]) and len(j["neighbours"]) > 8')" = True
claim 'more of a resource is no slower, and another plan no worse' test "$(json plan.json 'all(r["best_plan_s"] <= r["same_plan_s"] <= j["plans"][0]["step_s"] for r in j["ten_percent_more"]) and len(j["ten_percent_more"])')" = 7
claim 'an interval, and the null model' test "$(json plan.json 'j["step_low90_s"] < j["plans"][0]["step_s"] < j["step_high90_s"] and j["null_step_s"] > 0')" = True
claim 'text has the figures of JSON' grep -q "^step: $(json plan.json '"%.3f" % j["plans"][0]["step_s"]' | sed 's/0*$//') s, 90 % interval" plan.txt
claim 'both conventions of MFU' grep -q '^MFU: .* attention as if not causal (Megatron-LM, NeMo), .* causal (Megatron-Bridge)$' plan.txt
for words in 'where a step' 'memory of a rank by stage' '^why not' '^10 % more of a resource' '^certificate: ' 'null model: '; do claim "text has '$words'" grep -q "$words" plan.txt; done
claim 'the same with one thread, to the byte' cmp plan.txt <(plan llama3-70b --topology h100-8 --world 512 --batch 1024 --sensitivity --threads 1)
claim 'the same with two' cmp plan.txt <(plan llama3-70b --topology h100-8 --world 512 --batch 1024 --sensitivity --threads 2)
plan llama3-70b --topology h100-8 --world 512 --batch 1024 --sensitivity --exhaustive >all.txt
claim 'the same plans where each layout is evaluated' cmp <(grep -v 'legal layouts:' plan.txt) <(grep -v 'legal layouts:' all.txt)
claim 'which leaves none out' grep -q ', 0 left out since' all.txt
claim '405B on 16,384 devices, within a second of processor time' bash -c "ulimit -t 2; '$lockstep' plan llama3-405b --topology h100-8 --world 16384 | grep -q '^certificate: '"

# --- what is asked for
claim 'degrees that are given' test "$(plan llama3-8b --topology h100-8 --world 64 --tp 4 --pp 2 --zero 1 --micro-batch 1 --json >given.json; json given.json '[(p["tp"], p["pp"], p["zero"], p["micro_batch"]) for p in j["plans"]] == [(4, 2, 1, 1)] * len(j["plans"])')" = True
# R215: only FLOPs matter. The layout that would then be best, at the price that it has.
of_flops=(gpt3-175b --topology a100-8 --world 512 --batch 128)
plan "${of_flops[@]}" --rank-by flops --json >flops.json
plan "${of_flops[@]}" --rank-by flops >flops.txt
claim 'ranked by FLOPs: shorter as ranked, longer in full, than the best plan' test "$(json flops.json '(lambda f, b: f["ranked_s"] < b < f["plan"]["step_s"])(j["by_flops"], j["plans"][0]["step_s"])')" = True
claim 'what travels costs nothing there, and most of its step here' test "$(json flops.json '(lambda f, b: f > 5 * b)(*(sum(p["parts_s"][k] for k in ("tensor", "exchange", "hops", "data")) for p in (j["by_flops"]["plan"], j["plans"][0])))')" = True
claim 'as ranked nothing travels: it is no more than the parts that compute' test "$(json flops.json '(lambda f: f["ranked_s"] <= sum(f["plan"]["parts_s"][k] for k in ("compute", "recompute", "bubble", "overhead")))(j["by_flops"])')" = True
claim 'it has all parts of a step' test "$(json flops.json '(lambda p: abs(sum(p["parts_s"].values()) - p["step_s"]) <= 1e-12 * p["step_s"])(j["by_flops"]["plan"])')" = True
degrees=$(json flops.json '" ".join("--%s %d" % (k, j["by_flops"]["plan"][k.replace("-", "_")]) for k in ("tp", "pp", "cp", "zero", "micro-batch"))')
# shellcheck disable=SC2086
plan "${of_flops[@]}" $degrees --json >same.json
claim 'no faster than the fastest of its degrees' test "$(python3 -c 'import json; f, s = (json.load(open(x)) for x in ("flops.json", "same.json")); print(f["by_flops"]["plan"]["step_s"] >= s["plans"][0]["step_s"] * (1 - 1e-12))')" = True
claim 'both plans in words' test "$(grep -cE '^ *plan: tp ' flops.txt)" = 2
claim 'and by how much' grep -qE "^  step: .* as it is ranked, .* with everything counted: [0-9.]+ times the best plan's; [a-z]" flops.txt
claim 'a schedule that is given' has_line '1f1b' plan llama3-8b --topology h100-8 --world 64 --pp 2 --schedules 1f1b
claim 'less memory as the objective' test "$(plan llama3-8b --topology h100-8 --objective memory --json >least.json; plan llama3-8b --topology h100-8 --json >fast.json; python3 -c 'import json; a, b = (json.load(open(f))["plans"][0] for f in ("least.json", "fast.json")); print(a["memory_bytes"] < b["memory_bytes"] and a["step_s"] > b["step_s"])')" = True
plan llama3-8b --topology h100-8 --world 64 --batch 256 --want-mfu 0.5 --json >want.json
claim 'the smallest cluster for an MFU' test "$(json want.json 'j["answer"] == min(w["world"] for w in j["worlds"] if w["plan"] and w["plan"]["mfu_full_attention"] >= .5)')" = True
plan llama3-8b --topology h100-8 --world 64 --batch 256 --objective cost --json >cost.json
claim 'the cheapest cluster' test "$(json cost.json '(lambda f: f[j["answer"]] == min(f.values()))({w["world"]: w["world"] * w["plan"]["step_s"] for w in j["worlds"] if w["plan"]})')" = True
claim 'what no cluster has' has_line 'none of these, up to 16 ranks' plan llama3-8b --topology h100-8 --world 16 --want-mfu 0.99

# --- models
cat >config.json <<'JSON'
{
  "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
  "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192
}
JSON
plan ./config.json --topology h100-8 --world 64 --json >file.json
plan llama3-8b --topology h100-8 --world 64 --json >preset.json
claim 'a config.json has the plans of its preset' test "$(json file.json 'j["plans"]')" = "$(json preset.json 'j["plans"]')"
plan --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256 --gated --seq 8192 --topology h100-8 --world 64 --json >sizes.json
claim 'so have sizes of the command line' test "$(json sizes.json 'j["plans"]')" = "$(json preset.json 'j["plans"]')"
sed -i 's/"llama"/"lama"/' config.json
claim 'an unknown architecture, with its line' fails_with 78 "config.json:2: architecture 'lama' is not known, the nearest is llama" plan ./config.json
claim 'no file' fails_with 74 'reading a model from ./absent (expected a config.json, or a folder that has one): ./absent/config.json' plan ./absent
claim 'a size that is left out' fails_with 64 '--heads is missing: a model by its sizes needs --layers, --hidden, --heads and --vocab' plan --layers 12 --hidden 768
claim 'degrees that do not divide the ranks' fails_with 78 '8 ranks cannot be divided as tp 3: expected tp x pp x cp x dp to be the number of ranks, and ep to divide dp; nearest tp: 2 or 4; ' plan llama3-8b --topology h100-8 --world 8 --batch 8 --tp 3
claim 'which is above all that there are' fails_with 78 'nearest tp: 8; take other degrees' plan llama3-8b --topology h100-8 --world 16 --batch 8 --tp 99
claim 'a degree that divides the ranks, and not the heads' fails_with 78 'because tp does not divide the key heads; nearest tp: 8; ' plan llama3-8b --topology h100-8 --world 16 --batch 16 --tp 16
claim 'nor the experts' fails_with 78 'because ep does not divide the experts; nearest ep: 8; ' plan mixtral-8x7b --topology a100-8 --world 16 --batch 16 --ep 16
claim 'in no world of a question' fails_with 78 'searching worlds up to 16 ranks, none of which has a legal layout; of the largest: 16 ranks cannot be divided as tp 3: ' plan llama3-8b --topology h100-8 --world 16 --batch 16 --want-mfu 0.4 --tp 3
claim 'a micro-batch of no world' fails_with 78 'none of which has a legal layout; of the largest: micro-batch 7 does not divide' plan llama3-8b --topology h100-8 --world 16 --batch 16 --want-step 9 --micro-batch 7
claim 'a number of plans, where each world has one' fails_with 64 '--top is of plans for one cluster' plan llama3-8b --topology h100-8 --world 16 --want-mfu 0.4 --top 2
claim 'a size of experts that are not there' fails_with 64 '--expert-ffn: llama3-8b has no experts, so nothing would change' plan llama3-8b --expert-ffn 64
claim 'or of a token' fails_with 64 '--topk: llama3-8b has no experts' plan llama3-8b --topk 2
claim 'the width of layers that are not there' fails_with 64 '--ffn: mixtral-8x7b has experts in every layer' plan mixtral-8x7b --ffn 64
claim 'deepseek-v3 has some' has_line 'deepseek-v3: ' plan deepseek-v3 --ffn 64
claim 'and keys of its own' fails_with 64 '--kv-heads: deepseek-v3 has latent attention' plan deepseek-v3 --kv-heads 16
claim 'and heads of its own' fails_with 64 '--head-dim: deepseek-v3 has latent attention' plan deepseek-v3 --head-dim 64
claim 'products that a device does not have' fails_with 78 'A100 SXM has no products of 8 bits that are faster than those of 16: expected --dtype bf16, or' plan llama3-8b --topology a100-8 --world 8 --dtype fp8
claim 'of 4 bits' fails_with 78 'H100 SXM has no products of 4 bits that are faster than those of 8: expected --dtype bf16 or fp8, or' plan llama3-8b --topology h100-8 --world 8 --dtype fp4
claim 'an empty name of a cluster' fails_with 64 '--topology: expected a value, found an empty one' plan llama3-8b --topology ''
claim 'a schedule after the last comma' fails_with 64 "--schedules gpipe,: there is no ''" plan llama3-8b --topology h100-8 --world 8 --schedules gpipe,
claim 'nor do several together' fails_with 78 '8 ranks cannot be divided as tp 4 pp 4: ' plan llama3-8b --topology h100-8 --world 8 --batch 8 --tp 4 --pp 4
claim 'a micro-batch of no layout' fails_with 78 'micro-batch 3 does not divide the sequences per replica of any layout of 8 ranks with a batch of 8' plan llama3-8b --topology h100-8 --world 8 --batch 8 --micro-batch 3
claim 'among degrees that are refused' fails_with 78 'micro-batch 3 does not divide the sequences per replica of any layout of 16 ranks with a batch of 16' plan llama3-8b --topology h100-8 --world 16 --batch 16 --micro-batch 3
claim 'experts of a dense model' fails_with 78 'ep 2: the model has no experts' plan llama3-8b --topology h100-8 --world 8 --batch 8 --ep 2
claim 'experts of no replica' fails_with 78 '8 ranks cannot be divided as tp 8 ep 2: ' plan mixtral-8x7b --topology h100-8 --world 8 --batch 8 --tp 8 --ep 2

# --- a recipe of the plan runs here: each of these on 4 ranks, a few steps
small_text 400
tiny="--vocab 128 --seq 32 --batch 16 --topology h100-8 --world 4"
runs() { # name, options of the plan
    local name=$1
    shift
    plan "$@" $tiny --write "$name.yaml" >/dev/null || return 1
    timeout -k 5 120 "$lockstep" train "$name.yaml" --ranks-as threads --nproc-per-node 4 --data.path tokens --train.steps 2 --run.dir "run-$name" >"$name.out" || return 1
    grep -q '^final step=2 ' "$name.out"
}
llama="--layers 4 --hidden 32 --heads 4 --kv-heads 2 --ffn 64 --gated"
claim 'tp 2, dp 2' runs tp $llama --tp 2 --pp 1 --cp 1
claim 'pp 2 with recomputation and ZeRO 1' runs pp $llama --tp 1 --pp 2 --cp 1 --zero 1 --schedules 1f1b
claim 'pp 2 by ZB-H2' runs h2 $llama --tp 1 --pp 2 --cp 1 --schedules zb-h2
claim 'an interleaved pipeline of 4' runs chunks --layers 8 --hidden 32 --heads 4 --kv-heads 2 --ffn 64 --gated --pp 4 --schedules interleaved
claim 'stages whose ends have a layer less' runs ends --layers 6 --hidden 32 --heads 4 --kv-heads 2 --ffn 64 --gated --pp 4 --schedules 1f1b
claim 'which is in the recipe' grep -q '^  split: \[1, 2, 2, 1\]$' ends.yaml
claim 'cp 2, ZeRO 3' runs cp $llama --tp 1 --pp 1 --cp 2 --zero 3
claim 'experts' runs ep --layers 4 --hidden 32 --heads 4 --kv-heads 2 --gated --experts 4 --topk 2 --expert-ffn 32 --tp 1 --pp 1 --cp 1 --ep 2
claim 'the best of all' runs best $llama
claim 'a recipe of many clusters' fails_with 64 '--write, --sensitivity and --rank-by are of one plan' plan llama3-8b --topology h100-8 --world 16 --want-mfu 0.5 --write x.yaml
claim 'nor their rank by FLOPs' fails_with 64 '--write, --sensitivity and --rank-by are of one plan' plan llama3-8b --topology h100-8 --world 16 --want-mfu 0.5 --rank-by flops
claim 'nor their sensitivity' fails_with 64 '--write, --sensitivity and --rank-by are of one plan' plan llama3-8b --topology h100-8 --world 16 --objective cost --sensitivity
claim 'heads of 41 channels, which rotary positions do not divide in two' fails_with 78 'the runtime has no model with rotary positions in heads of an odd size' \
    plan --layers 4 --hidden 328 --heads 8 --vocab 512 --seq 16 --gated --topology h100-8 --world 8 --batch 8 --write odd.yaml
claim 'nor is such a recipe written' test ! -e odd.yaml
claim 'ZeRO 3 of backwards in halves' fails_with 78 'ZeRO 3 reduces gradients in each backward, and those of schedule zb-h1 are in two halves' \
    plan $llama $tiny --tp 1 --pp 2 --cp 1 --schedules zb-h1 --zero 3 --write halves.yaml
claim 'of whole ones it runs' runs whole $llama --tp 1 --pp 2 --cp 1 --schedules 1f1b --zero 3
claim 'a model that the runtime does not have' fails_with 78 'the runtime has no model with latent attention' plan deepseek-v3 --topology h100-8 --world 2048 --write deepseek.yaml

# --- bad input
claim 'a world that does not fit a file' fails_with 78 'world 64 does not fit topology h100-8, which has 32 devices' plan llama3-8b --topology "$clusters/h100-8.yaml" --world 64
claim 'which more units make room for' has_line '64 ranks on h100-8' plan llama3-8b --topology "$clusters/h100-8.yaml" --world 64 --units 8
claim 'nodes that are not filled' fails_with 78 'the nearest worlds that do are 96 and 104' plan llama3-8b --topology h100-8 --world 100
claim 'heads that no degree divides' fails_with 78 'tp does not divide the heads' plan llama3-8b --topology h100-8 --world 8 --batch 1 --tp 8 --heads 30 --kv-heads 30 --head-dim 128
claim 'memory that no layout fits: the nearest miss, and by how much' fails_with 78 'there are 80.00 GB; the nearest miss, by 840.90 GB, is tp 8' plan llama3-405b --topology h100-8 --world 8
claim 'memory without a unit' fails_with 64 '--memory 80: ' plan llama3-8b --topology h100-8 --memory 80
claim 'a schedule that is none' fails_with 64 "there is no 'zb-h9'" plan llama3-8b --topology h100-8 --schedules 1f1b,zb-h9
claim 'a world without a cluster' fails_with 64 '--world needs a cluster' plan llama3-8b --world 8
claim 'this machine' fails_with 78 '--topology local: there are no constants' plan llama3-8b --topology local
claim 'no such cluster' fails_with 74 'no cluster of that name' plan llama3-8b --topology h900
finish
