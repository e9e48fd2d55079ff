#!/bin/bash
# test_explain.sh -- `lockstep explain zero` as a user meets it: the textbook's numbers in the table, the same numbers as
# in memory.json of runs whose ranks are processes, and what wrong input leads to.
#
#   tests/test_explain.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
# Matrices of 8 rows or a multiple of it, and rows of whole cache lines: nothing is padded but biases.
cat >base.yaml <<YAML
model: { name: mlp, dims: [64, 128, 64, 32] }
data: { name: synthetic }
train: { steps: 3, global_batch: 32 }
optim: { name: adam }
YAML
cat >gpt2.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 3, global_batch: 8, micro_batch: 1, dtype: bf16, eval_every: 3, eval_batches: 1 }
zero: { stage: 3, copy: rank, reshard: never }
YAML
have_python() { python3 -c 'import json' 2>/dev/null; }
explain() {
    timeout -k 5 60 "$lockstep" explain zero "$@" >out 2>err
    code=$?
}

# --- the table
elements=$((64 * 128 + 128 + 128 * 64 + 64 + 64 * 32 + 32))
explain base.yaml -n 4
claim 'it ends with 0' ends_with 0
claim 'it says how many parameters there are' prints "^P = $elements parameters\$"
claim 'and which column the configuration means' prints '^zero.stage +0 \* +1 +2 +3 +3 +3 +3$'
claim 'and how the columns differ' prints '^zero.reshard +- +- +- +- +always +default +never$'
claim 'the formulas of parameters' prints '^parameters, f32 +4 P +4 P +4 P +4 P/W +4 P/W +4 P/W +4 P/W$'
claim 'of gradients' prints '^gradients +4 P +4 P +4 P/W +4 P/W'
claim 'and of state' prints '^optimizer state +8 P +8 P/W +8 P/W +8 P/W'
claim 'and what they come to' prints "^  by formula +$((8 * elements)) +$((2 * elements)) +$((2 * elements)) "
claim '16, 10, 7 and 4 bytes per parameter, and some padding' \
    prints '^  bytes per parameter +16\.[01][0-9]* +10\.[01][0-9]* +7\.0[0-9]* +4\.0[0-9]* +4\.0'
claim 'twice, once, and three times what travels' prints '^  in \(W-1\)/W 4 P, no others +2\.00[0-9] +2\.000 +2\.000 +1\.000 +3\.000 +2\.[0-9]+ +2\.000$'
claim 'of a gather for each unit, forward and backward' prints '^parameters +- +4 P +4 P +- +2 U +2 U - L +U$'
claim 'what a peak is made of' prints '^values of units in use +0 +0 +0 +0 +[1-9]'
claim 'and all of it' prints '^peak, planned( +[1-9][0-9]+){7}$'
claim 'nothing was trained' test ! -e runs

explain base.yaml -n 1,2,4,8 --stages 0,2
claim 'a table for each number of ranks' test "$(grep -c '^W = ' out)" = 4
claim 'of the stages that were asked for' prints '^zero.stage +0 \* +2$'
explain base.yaml -n 2 --optim.name sgd --optim.momentum 0
claim 'without state there is no formula for it' prints '^optimizer state( +-){7}$'
explain base.yaml -n 2 --zero.prefetch 0
claim 'a key that some columns read is read' prints '^zero.prefetch 0: units in use are 1 neighbours'
claim 'and makes the peak smaller' prints "^values of units in use +0 +0 +0 +0 +$((4 * (64 * 128 + 128))) +$((4 * (64 * 128 + 128))) "
explain gpt2.yaml -n 2
claim 'the column of the configuration, with all of its keys' prints '^zero.stage +0 +1 +2 +3 +3 +3 +3 \*$'
claim 'formulas in bf16' prints '^copies in bf16 +2 M +2 M +2 M +2 M/W +- +- +-$'
claim 'master weights are sharded from stage 1 on' prints '^parameters, f32 +4 P +4 V \+ 4 M/W +4 V \+ 4 M/W +4 P/W'
claim 'each micro-batch is reduced from stage 2 on' prints '^gradients +2 \(4 P\) +4 P +4 \(4 P\) +4 \(4 P\)'
explain base.yaml -n 2 --ddp.hook bf16
claim 'a hook halves the bytes of stage 0' prints "^  by formula +$((2 * elements)) +refused"
claim 'by the formula, too' prints '^gradients +2 \(2 P\)( +-){6}$'
claim 'and others refuse it' prints '^refused, zero.stage 1: ddp.hook bf16 with zero.stage 1'
explain base.yaml -n 2 --comm.transport tcp
claim 'over wires as much travels' prints '^  in \(W-1\)/W 4 P, no others +2\.000 +2\.000 +2\.000 +refused +3\.000 +2\.[0-9]+ +2\.000$'
claim 'and there is no memory for one copy' prints "^refused, zero.stage 3: .*these ranks do not map each other's memory"

# --- several sets of shards, and sums that are rounded on the wire
explain base.yaml -n 4 --zero.hsdp 2
claim 'the sets' prints '^W = 4 ranks, C = 2 sets of S = 2 shards: '
claim 'state is sharded within a set' prints '^optimizer state +8 P +8 P/S +8 P/S'
claim 'gradients, where memory is shared' prints '^gradients: \(W-1\)/W of( +2 \(4 P\)){7}$'
claim 'values within a set' prints '^parameters: \(S-1\)/S of +- +4 P +4 P +- +2 U +2 U - L +U$'
claim 'nothing between sets alone' test "$(grep -c '^between sets' out)" = 0
explain base.yaml -n 4 --zero.hsdp 2 --comm.transport tcp
claim 'over connections sums are complete within a set first' prints '^gradients in set: \(S-1\)/S of +- +4 P +4 P +- +4 P +4 P +4 P$'
claim 'then between sets' prints '^between sets: \(C-1\)/C of +-( +2 \(4 P\)/S){2} +-( +2 \(4 P\)/S){3}$'
claim 'stage 1 has memory for both' prints '^gradients +4 P +4 P \+ 4 P/S +4 P/S +- '
claim 'one copy per node is refused' prints "^refused, zero.stage 3: .*these ranks do not map each other's memory"
explain base.yaml -n 2 --comm.transport tcp --comm.wire bf16 --stages 0,1,2
claim 'half of the bytes, of what is rounded' prints '^gradients +2 \(4 P - 2 N\) +4 P - 2 N +4 P - 2 N$'
claim 'which are so many elements' prints "^  N, in bf16 on the wire +$elements +$elements +$((64 * 128 + 128 + 128 * 64 + 64))\$"

# --- a run's own numbers
# Every kind of rank 0, in JSON and in memory.json; and the lines of a kind add up to it.
as_run() {
    python3 - "$@" <<'PY'
import json, sys
ranks, stage, copy, reshard = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
moved = [json.loads(line)['comm/bytes'] for line in open('run/metrics.jsonl') if 'comm/bytes' in line]
world = json.load(open('out'))['worlds'][0]
assert world['world_size'] == ranks
way = [w for w in world['ways'] if w['stage'] == stage and (w['copy'] or 'host') == copy and (w['reshard'] or 'default') == reshard]
assert len(way) == 1 and not way[0]['refused'] and len(way[0]['ranks']) == ranks, way
rank = way[0]['ranks'][0]
memory = json.load(open('run/memory.json'))
for kind, bytes in rank['planned'].items():
    assert memory[kind]['peak'] == bytes, (kind, memory[kind], bytes)
held, use = rank['held'], rank['in_use']
for h in held.values(): assert h['planned'] == h['formula'] + h['rows'] + h['alignment'], h
def in_use(k): return use[k]['formula'] + use[k]['padding']
assert memory['param']['peak'] == held['parameters']['planned'] + held['copies']['planned'] + in_use('values') + use['packed'] + use['samples']
assert memory['grad']['peak'] == held['gradients']['planned'] + in_use('gradients')
assert memory['optim']['peak'] == held['optimizer']['planned']
traffic = rank['traffic']
assert moved[-1] == traffic['others'] + sum(t['counted'] for t in traffic.values() if isinstance(t, dict)), (moved, traffic)
PY
}
compare() { # file, ranks, stage, copy, reshard, more keys
    local file=$1 ranks=$2 stage=$3 copy=$4 reshard=$5 keys=(--zero.stage "$3") more=("${@:6}")
    [ "$stage" != 3 ] || keys+=(--zero.copy "$copy")
    [ "$copy" != rank ] || keys+=(--zero.reshard "$reshard")
    rm -rf run
    timeout -k 5 60 "$lockstep" train "$file" -n "$ranks" "${keys[@]}" "${more[@]}" --run.dir run >run.out 2>&1 || { cat run.out; return 1; }
    explain "$file" -n "$ranks" "${more[@]}" --json
    ends_with 0 && as_run "$ranks" "$stage" "$copy" "$reshard"
}
sed '/^zero/d' gpt2.yaml >plain.yaml
if have_python; then
    for ranks in 1 2 4 8; do
        claim "$ranks processes, f32, stage 1: memory.json" compare base.yaml $ranks 1 host default
        claim "$ranks processes, bf16, stage 3: memory.json" compare plain.yaml $ranks 3 host default
    done
    for way in '0 host default' '2 host default' '3 rank always' '3 rank default' '3 rank never'; do
        # shellcheck disable=SC2086
        claim "2 processes, bf16, stage $way: memory.json" compare plain.yaml 2 $way
    done
    for way in '1 host default' '2 host default' '3 host default' '3 rank always' '3 rank default' '3 rank never'; do
        # shellcheck disable=SC2086
        claim "4 processes, bf16, 2 sets of shards, stage $way: memory.json and metrics.jsonl" \
            compare plain.yaml 4 $way --zero.hsdp 2
        [ "$way" != '3 host default' ] || continue
        for wire in f32 bf16; do
            # shellcheck disable=SC2086
            claim "over connections, comm.wire $wire, stage $way" \
                compare plain.yaml 4 $way --zero.hsdp 2 --comm.transport tcp --comm.wire $wire
        done
    done
    claim 'a set for each rank needs no shared memory for one copy' \
        compare plain.yaml 4 3 host default --zero.hsdp 4 --comm.transport tcp
    for way in '0 host default' '2 host default' '3 rank always'; do
        # shellcheck disable=SC2086
        claim "sums rounded at every hop, stage $way" \
            compare base.yaml 4 $way --comm.transport tcp --comm.wire bf16 --comm.algo ring
    done
    claim 'sums that are not rounded, since these ranks map each other'"'"'s memory' \
        compare base.yaml 2 1 host default --comm.transport mixed --comm.wire bf16
    claim 'the formula has no N then' python3 -c 'import json
assert all(r["traffic"]["gradients"]["rounded"] == 0 for w in json.load(open("out"))["worlds"][0]["ways"] for r in w["ranks"])'
    claim 'a hook that all_reduces in f32 is rounded, too' \
        compare base.yaml 2 0 host default --comm.transport tcp --comm.wire bf16 --ddp.hook allreduce
    claim 'and counted' python3 -c 'import json
w = json.load(open("out"))["worlds"][0]; t = w["ways"][0]["ranks"][0]["traffic"]["gradients"]
assert t["rounded"] == w["parameters"] and t["formula"] == 2 * w["parameters"], t'
    claim 'backend gloo is planned as what it is' compare base.yaml 2 2 host default --comm.backend gloo
    explain base.yaml -n 1,2 --json
    claim 'JSON of two numbers of ranks' python3 -c 'import json; assert [w["world_size"] for w in json.load(open("out"))["worlds"]] == [1, 2]'
    explain plain.yaml -n 2 --train.pack_weights always --json
    claim 'JSON says what is refused' \
        python3 -c 'import json; assert [bool(w["refused"]) for w in json.load(open("out"))["worlds"][0]["ways"]] == [False] * 3 + [True] * 4'
fi

# --- wrong input
refuses() { # status, text, words...
    local status=$1 text=$2
    shift 2
    fails_with "$status" "$text" "$lockstep" explain "$@"
}
claim 'what is explained must be said' refuses 64 'expected zero and a recipe, a recipe, or a run'
claim 'and be known' refuses 64 "one configuration file is expected, 'base.yaml' is a second one" tq base.yaml
claim 'a configuration must be given' refuses 64 'which run? Give a YAML file' zero
claim 'an unknown recipe' refuses 74 'nothing-like-it: No such file, and no recipe of that name' zero nothing-like-it
claim 'a stage that does not exist' refuses 64 '--stages' zero base.yaml --stages 4
claim 'nor as a key' refuses 64 'zero.stage' zero base.yaml --zero.stage 4
claim 'no ranks' refuses 64 '--ranks' zero base.yaml -n 0
claim 'more than a node has' refuses 64 '1..256' zero base.yaml -n 257
claim 'no number' refuses 64 '--ranks' zero base.yaml -n many
claim 'ranks that cannot share the batch' refuses 78 'train.global_batch is 32, which 3 ranks cannot share equally' zero base.yaml -n 3
claim 'ranks that divide layers' refuses 78 'explain zero knows of data parallelism alone, and parallel.tp is 2' zero base.yaml --parallel.tp 2
claim 'the ranks of the configuration are others' refuses 78 'parallel.dp is 2 but the job has 4 ranks' zero base.yaml --parallel.dp 2
claim 'or the same' has_line 'W = 2 ranks' "$lockstep" explain zero base.yaml --parallel.dp 2 -n 2
claim 'packed weights with stage 3, which was asked for' \
    refuses 78 'train.pack_weights always with zero.stage 3' zero plain.yaml -n 2 --stages 3 --train.pack_weights always
explain plain.yaml -n 2 --train.pack_weights always
claim 'packed weights: stages 0 to 2 are shown all the same' ends_with 0
claim 'stage 3 is not' prints '^peak, planned( +[0-9]+){3}( +refused){4}$'
claim 'and why is said' prints '^refused, zero.stage 3: .*train.pack_weights always with zero.stage 3'
claim 'traffic without a formula: factors' refuses 78 'ddp.hook powersgd: its bytes change after ddp.powersgd_start steps' zero base.yaml -n 2 --ddp.hook powersgd
claim 'or of another library' refuses 78 'comm.backend mpi: the bytes that another library moves are not known' zero base.yaml -n 2 --comm.backend mpi
claim 'a strategy that the stage is not' refuses 78 'parallel.dp_strategy is ddp, but zero.stage is 1' zero base.yaml -n 2 --parallel.dp_strategy ddp --zero.stage 1
claim 'sums that are rounded where there is no wire, as a run refuses them' \
    refuses 78 "comm.wire: bf16 is for connections between nodes, and transport 'shm' has none" zero base.yaml -n 2 --comm.wire bf16
claim 'but one rank has no sums' has_line 'W = 1 rank: ' "$lockstep" explain zero base.yaml -n 1 --comm.wire bf16
claim 'sets that cannot share the ranks, which were asked for' \
    refuses 78 'hsdp 3 does not divide the number of ranks, which is 4: nearest valid: 2 or 4' zero base.yaml -n 4 --stages 1 --zero.hsdp 3
explain base.yaml -n 4 --zero.hsdp 3
claim 'stage 0 has no sets' prints '^peak, planned( +[0-9]+)( +refused){6}$'
claim 'and the others say why not' prints '^refused, zero.stage 1: .*hsdp 3 does not divide the number of ranks, which is 4'
explain base.yaml -n 2 --comm.backend gloo
claim 'a backend of another name that is our own' ends_with 0
claim 'a key that nothing reads' refuses 78 'optim.betas belongs to optim.name adam and adamw' zero base.yaml --optim.name sgd --optim.betas 0.9,0.95
claim 'an option of another command' refuses 64 '--dry-run belongs to `lockstep train`' zero base.yaml --dry-run
claim 'two recipes' refuses 64 'is a second one' zero base.yaml gpt2.yaml
claim '--help has an example' has_line 'lockstep explain zero gpt2-tiny -n 1,2,4' "$lockstep" explain --help
finish
