#!/bin/bash
# test_explain_topics.sh -- `lockstep explain TOPIC`: each way to divide a model under five headings, with numbers that closed forms
# give, too (R115, R117, R131, R136, R148, R149, R153, R175, R195-R197, R200-R215, R238); and `explain --compare`.
#
#   tests/test_explain_topics.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >gpt2.yaml <<YAML
model: { name: gpt2, n_layer: 3, n_head: 4, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 8, micro_batch: 2, eval_every: 0 }
optim: { name: adamw }
YAML
sed 's/gpt2, n_layer: 3/moe, n_experts: 4, top_k: 2, d_expert: 16, n_layer: 3/' gpt2.yaml >moe.yaml
explain() {
    timeout -k 5 60 "$lockstep" explain "$@" >out 2>err
    code=$?
}

four() { sed -n '/^in four parts$/,$p' "$1" | sed -nE 's/^  (state|axis and shape|collective and link|number): .*/\1/p' | tr '\n' ';'; }

section() { sed -n "/^$1\$/,/^\$/p" out | tr -s '\n ' ' '; } # in one line
part() { section 'in four parts' | grep -qF -- "$1: $2" || { section 'in four parts'; return 1; }; }
section_has() { section "$1" | grep -qE -- "$2" || { section "$1"; return 1; }; }
mistakes() { section_has 'common misunderstanding' "$1"; }
asked() { section_has 'often asked' "$1"; }
comma() { sed -E ':a; s/^([0-9]+)([0-9]{3})/\1,\2/; ta' <<<"$1"; }

# --- without a configuration a topic has a plan of its own, and needs no data
for topic in dp tp sp cp ep pp 3d; do
    explain $topic
    claim "$topic: it ends with 0" ends_with 0
    for head in problem synchronization 'state placement' 'communication cost' 'common misunderstanding'; do
        claim "$topic: the heading $head" test "$(grep -cx "$head" out)" = 1
    done
    axes=1
    [ $topic = 3d ] && axes=3
    claim "$topic: then four parts of each axis, in order (R175, R201)" test "$(four out)" = "$(for ((i = 0; i < axes; i++)); do printf 'state;axis and shape;collective and link;number;'; done)"
    claim "$topic: nothing on stderr" test ! -s err
done
claim 'no run, and no data, came of it' test ! -e runs -a ! -e .cache

# --- tp: shapes, and the collectives of the closed form
explain tp gpt2.yaml --parallel.tp 2 -n 4
claim 'tp: the plan' prints '; 4 ranks = tp 2 x dp 2, zero.stage 0$'
claim 'tp: columns of queries, keys and values' prints '^   \|  attn.c_attn.weight +by columns  \[48, 32\] +\[48, 32\] +\[96, 32\]$'
claim 'tp: rows of the second product' prints '^   \|  attn.c_proj.weight +by rows +\[32, 16\] +\[32, 16\] +\[32, 32\]$'
claim 'tp: width of the mlp' prints '^   \|  mlp.c_fc.weight +by columns  \[64, 32\] +\[64, 32\] +\[128, 32\]$'
claim 'tp: half of the heads' prints '^   \|  attention: 2 of 4 heads on each rank$'
claim 'tp: what a leave adds up' prints "^    leave  forward: all_reduce of \[2, 32, 32\], $((2 * 32 * 32 * 4)) bytes; backward: nothing\$"
# 2 micro-batches, each with 2 L + 1 calls of [2, 32, 32] in f32
claim 'tp: calls and bytes forward' prints "^  tp 0, 1 +all_reduce +leave +$((2 * 7)) +$((2 * 7 * 2 * 32 * 32 * 4)) "
claim 'tp: and backward' prints "^  tp 0, 1 +all_reduce +enter backward +$((2 * 7)) +$((2 * 7 * 2 * 32 * 32 * 4)) "
claim 'tp: the formula' prints '\(2 L \+ 1\) \+ \(2 L \+ 1\) = 14 per micro-batch, 28 per'
claim 'tp: why it stays in a node' prints '"Tensor parallelism scales over any link." Its 32 calls take [0-9.]+ times as long over a network'
# with C = 32: matrices, 257 rows of the vocabulary, of which a rank has 129 at most, biases by columns, what each rank has whole
matrices=$((3 * 12 * 32 * 32)) columns=$((3 * (96 + 128))) whole=$((3 * (2 * 32 + 4 * 32) + 32 * 32 + 2 * 32))
parameters=$((matrices + 257 * 32 + columns + whole))
claim 'tp in four parts: state' part state "each layer: heads, width of the mlp, vocabulary; rank 0 stores $(comma $(((matrices + columns) / 2 + 129 * 32 + whole))) of $(comma $parameters) parameters and updates "
claim 'tp in four parts: axis and shape' part 'axis and shape' 'tp 2; inputs: nothing: the same samples on each rank; a micro-batch of rank 0 is [2, 32, 32].'
claim 'tp in four parts: collective and link' part 'collective and link' "mostly all_reduce (leave), 14 calls with $(comma $((14 * 2 * 32 * 32 * 4))) bytes in group tp 0, 1, in memory of one node; between two products: exposed."
# and for the loss of each of 2 micro-batches two floats and two doubles of each of 64 tokens: a ring of two sends what it sums
claim 'tp in four parts: number' part number "32 calls, in which rank 0 sends $(comma $((28 * 2 * 32 * 32 * 4 + 2 * 64 * (8 + 16)))) bytes per step: "
explain tp gpt2.yaml --parallel.tp 2 --parallel.tp_pieces 4 -n 4
claim 'tp: pieces' prints '; 4 ranks = tp 2 \(4 pieces\) x dp 2, zero.stage 0$'
claim 'tp: pieces are calls, of as many bytes' prints "^  tp 0, 1 +all_reduce +leave +$((2 * (1 + 6 * 4))) +$((2 * 7 * 2 * 32 * 32 * 4)) "
claim 'tp: backward as well, beside products' prints "^  tp 0, 1 +all_reduce +enter backward +$((2 * (1 + 6 * 4))) +$((2 * 7 * 2 * 32 * 32 * 4)) .* beside products"
explain tp gpt2.yaml
claim 'tp: a configuration without the axis' prints '^the configuration does not have this axis: shown with parallel.tp 2$'
explain tp moe.yaml --parallel.tp 2
claim 'tp: experts by width' prints '^   \|  block_sparse_moe.experts.w1.weight by width +\[32, 32\] +\[32, 32\] +\[64, 32\]$'
explain sp gpt2.yaml --parallel.tp 2 --parallel.sp true
claim 'sp: parts of the sequence' prints '^    enter  forward: all_gather \[2, 16, 32\] -> \[2, 32, 32\], 8192 bytes; backward: the same again, and reduce_scatter of its gradient$'
sent=$(sed -nE 's/^  A rank sends ([0-9,]+) bytes per step if calls go round a ring, and ([0-9,]+) without.*/\1 \2/p' out | tr -d ,)
again=$((2 * 3 * 2 * 8192 / 2)) # two enters per layer and micro-batch, of which a rank sends half
whole=$((3 * 6 * 32 + 2 * 32 + 32 * 32)) # per layer two norms of 2 C and two biases of C; the last norm, positions
claim 'sp: what backward gathers again, and the gradients of what is whole' test "$((${sent% *} - ${sent#* }))" = "$((again + 4 * whole))"

# --- cp: work of each rank, by counting pairs one by one
explain cp gpt2.yaml --parallel.cp 4 -n 4
claim 'cp: the plan' prints '; 4 ranks = cp 4 \(ring\), zero.stage 0$'
pairs() { # split, tokens, ranks: of each rank
    awk -v split_by="$1" -v T="$2" -v P="$3" 'BEGIN {
        for (q = 0; q < T; q++) {
            r = split_by == "contiguous" ? int(q / (T / P)) : int(q / (T / P / 2)); if (r >= P) r = 2 * P - 1 - r
            n[r] += q + 1 }
        for (r = 0; r < P; r++) printf "%d ", n[r] }'
}
shown() { awk -v split_by="$1" '$1 ~ "^" split_by { on = 1; next } /^  all ranks wait/ { on = 0 } on && $1 ~ /^[0-9]+$/ { printf "%d ", $(NF - 1) }' out; }
for split in zigzag contiguous; do claim "cp: query-key pairs, $split" test "$(shown $split)" = "$(pairs $split 32 4)"; done
claim 'cp: zigzag is equal' test "$(shown zigzag | tr ' ' '\n' | grep . | sort -u | wc -l)" = 1
for r in 0 1 2 3; do # r whole blocks and a causal one: 2 r + 1 halves
    claim "cp: contiguous, rank $r: blocks computed and skipped" prints "^ +$r $((8 * r))-$((8 * r + 7)) +$((r + 1)) +$((3 - r)) "
done
claim 'cp: the misunderstanding' prints '= 1.750 times the mean'
claim 'cp: activations shrink with cp' test "$(awk '$1 == "2" && NF == 3 && $3 < 0.7' out | wc -l)" = 1
explain cp gpt2.yaml --parallel.cp 2 --parallel.tp 2 -n 4
claim 'cp: beside tp' prints '"Dividing sequences and dividing layers exclude each other." This plan has tp 2 and cp 2'

# --- ep: experts and rows
explain ep moe.yaml --parallel.ep 2 -n 4
claim 'ep: where experts are' prints '^       \|    rank 1 of ep: experts 2 to 3, each of 32 x 16 x 3$'
claim 'ep: rows that leave' prints ': 128 rows leave a rank'
claim 'ep: half of them' prints 'If loads are equal, 64 of 128 rows of a micro-batch and layer leave rank 0, with 8,192 bytes each way'
claim 'ep: operations per byte' prints '18 C F = 9.22e\+03'

# --- pp: stages and the bubble
explain pp gpt2.yaml --parallel.pp 2 --train.micro_batch 1 -n 2
claim 'pp: the plan' prints '; 2 ranks = pp 2 \(1f1b\), zero.stage 0$'
claim 'pp: what passes: 8 micro-batches of [1, 32, 32] in f32, each way' prints "^  A boundary carries 2 m b T C values, 65,536 bytes per step"
claim 'pp: one message each way per micro-batch' prints "^  world +sendrecv +send 0-1 +8 +$((8 * 32 * 32 * 4)) "
claim 'pp: the bubble, (p - 1) / (m + p - 1)' prints 'Ranks idle 11.1 % of the time|= 11.1 %'
claim 'pp in four parts: of the whole model' section_has 'in four parts' "state: the list of layers; rank 0 stores [0-9,]+ of $(comma $parameters) parameters and updates "
claim 'pp: the bubble of these stages' section_has 'communication cost' ', and [0-9.]+ % by the operations of these stages\.'
claim 'pp: what it sends, beside what dp would (R207)' mistakes "bound by communication.\" Rank 0 sends and receives $(comma $((2 * 8 * 32 * 32 * 4 + 257 * 32 * 4))) bytes per step, .* would send $(comma $((4 * parameters))) bytes"
claim 'pp: micro-batches alive' prints 'at most 2 on the first rank and 1|those of the micro-batches that are alive, at most 2'

# --- 3d, dp, zero
explain 3d
claim '3d: without a configuration it is tp, dp and pp' prints '; 8 ranks = tp 2 x dp 2 x pp 2 \(1f1b\), zero.stage 0$'
claim '3d: what pp costs' section_has 'communication cost' 'what pp costs is the bubble: ranks idle [0-9.]+ % of a step with 8 micro-batches of schedule 1f1b'
links() { # the times that the text has are the sums of its table: in memory and on a network
    python3 - "$(section 'common misunderstanding')" <<'PY'
import re, sys
ms = lambda text: float(text[0]) * {'us': 1e-3, 'ms': 1, 's': 1e3}[text[1]]
rows = re.findall(r'^  (?:tp|dp|pp) .* ([0-9.]+) (us|ms|s) +([0-9.]+) (us|ms|s)$', open('out').read(), re.M)
near, far = sum(ms(r[:2]) for r in rows), sum(ms(r[2:]) for r in rows)
said = re.search(r'The collectives above take ([0-9.]+) (us|ms|s) if all ranks are in one node, and ([0-9.]+) (us|ms|s) if each', sys.argv[1]).groups()
assert len(rows) == 3 and abs(ms(said[:2]) / near - 1) < 0.01 and abs(ms(said[2:]) / far - 1) < 0.01 and far > 5 * near, (rows, said)
PY
}
claim '3d: operations alone, and equal pairs (R215)' links
explain 3d gpt2.yaml --parallel.tp 2 --parallel.cp 2 -n 8
claim '3d: a line per axis' test "$(grep -cE '^  (tp|cp|dp) +2  ' out)" = 3
claim '3d: tp goes inside a node' prints '^  tp +2  each layer.s matrices +inside a node +32 '
claim '3d: inputs or model state, by axis' prints '^  tp: inputs: nothing: the same samples on each rank. Model state: each layer: heads, width of the mlp'
claim '3d: not all of it is data parallel (R202)' mistakes 'Above, dp and ep divide samples, cp tokens; tp and pp give all their ranks the same inputs and divide the model'
claim '3d: what is wrong with any layout' prints '"It does not matter which ranks form which axis." If only dp crosses the network'
explain dp gpt2.yaml -n 4
claim 'dp: why gradients' prints 'Why gradients, and not parameters: the update of adamw is not'
for w in 2 8 128; do # R203, R33, R34: samples per rank fall, bytes do not
    bytes=$(awk -v w="$w" -v p="$parameters" 'BEGIN { printf "%.0f", 2 * (w - 1) / w * 4 * p }')
    claim "dp does not scale for ever: $w ranks" prints "^ +$w +$(awk -v w="$w" 'BEGIN { printf "%.3g", 8 / w }') +$(comma "$bytes") "
done
claim 'dp: no rank is a master: bytes through it, and through each rank of a ring (R204)' asked "DataParallel threads of one process, .*: $(comma $((2 * 3 * 4 * parameters))) bytes through it, and $(comma $((6 * parameters))) through each"
claim 'dp: samples differ, model state does not (R213, R214)' section_has 'state placement' 'Samples differ from rank to rank. Parameters, gradients and optimizer state, .* are the same on each rank; ZeRO shards them'
claim 'dp: sums begin in backward (R213)' prints '^  world +all_reduce +bucket +1 +[0-9]+ +[0-9]+  in backward: the last bucket is exposed$'
claim 'dp: TCP is slower than memory (R211)' mistakes '"Plain TCP is enough." The calls of a step take [0-9.]+ us in memory, [0-9.]+ (us|ms) by TCP within a machine and [0-9.]+ ms over'
claim 'dp: and by how much' python3 - "$(section 'common misunderstanding')" <<'PY'
import re, sys
at = [float(v) * (1 if u == 'us' else 1e3) for v, u in re.findall(r'([0-9.]+) (us|ms) (?:in memory|by TCP|over a)', sys.argv[1])]
assert len(at) == 3 and at[0] < at[1] < at[2], (at, sys.argv[1])
PY
claim 'dp: what else decides has commands (R212)' mistakes '`lockstep tune buckets`, a slow link `lockstep topo links`, a slow rank or loader `lockstep explain RUN`'
indexed=$(sed -nE '/^## Said in interviews/,$ s/^\|.*\| (`lockstep lab [^`]*`) \|$/\1/p' "$source_dir/labs/README.md")
claim 'dp: what is often asked, with the commands of the index (R200)' test "$(section 'often asked' | grep -oE '`lockstep lab [^`]*`')" = "$indexed"
claim 'which are six' test "$(wc -l <<<"$indexed")" = 6
claim 'dp: bytes of no_sync: those of two micro-batches would be twice those of one' asked 'Gradients of 1 micro-batch per step'
explain dp gpt2.yaml -n 4 --train.micro_batch 1
claim 'dp: several micro-batches are summed once' asked "Gradients of 2 micro-batches per step are accumulated, .*: $(comma $((2 * 3 * parameters))) bytes, and not $(comma $((4 * 3 * parameters)))\."
explain zero gpt2.yaml -n 4
claim 'zero: four parts' test "$(four out)" = 'state;axis and shape;collective and link;number;'
claim 'zero: the headings' test "$(grep -cxE 'problem|synchronization|state placement|communication cost|common misunderstanding' out)" = 5
claim 'zero: the peak has what is not sharded' prints '"With stage 3 memory is no problem." The peak of rank 0 is [0-9,]+ bytes with stage 3 and [0-9,]+ with'

# --- two plans, and a run
explain gpt2.yaml -n 4 --compare moe.yaml
claim 'compare: it ends with 0' ends_with 0
claim 'compare: keys that differ' prints '^  model.name +gpt2 +moe$'
claim 'compare: what is the same comes last' test "$(grep -nx 'the same' out | cut -d: -f1)" -gt "$(grep -n '^  model.name' out | cut -d: -f1)"
timeout -k 5 60 "$lockstep" train gpt2.yaml -n 4 --parallel.tp 2 --run.dir tp >train.out 2>&1 || cat train.out
timeout -k 5 60 "$lockstep" train gpt2.yaml -n 4 --zero.stage 1 --run.dir zero1 >train.out 2>&1 || cat train.out
topic_refused() { ends_with 64 && says '--compare belongs to'; }
explain tp --compare zero1
claim 'a topic is not compared' topic_refused
explain ./tp --compare zero1
claim 'compare: two runs' prints '^  axes +tp 2 x dp 2 +dp 4$'
claim 'compare: what each moves by tp' prints "^  bytes moved per step: tp +[1-9][0-9]* +-\$"
claim 'compare: and has counted' prints '^  bytes counted per step +[0-9]+ +[0-9]+$'
explain ./tp --compare zero1 --json
claim 'compare: JSON' python3 -c 'import json
x = json.load(open("out")); d = {r["what"]: r for r in x["different"]}
assert (x["a"], x["b"]) == ("./tp", "zero1") and d["parallel.tp"]["a"] == "2" and d["zero.stage"]["b"] == "1" and x["same"], x'

# --- wrong input
refuses() { # status, text, words...
    explain "${@:3}"
    ends_with "$1" && says "$2"
}
claim 'a topic about a run' refuses 64 'explain tp: expected a configuration, and not a run' tp ./zero1
claim 'a topic as JSON' refuses 64 '--json belongs to' tp --json
claim 'a configuration after flags' refuses 64 "'gpt2.yaml' belongs right after the topic" tp --parallel.tp 2 gpt2.yaml
claim 'an axis that does not fit' refuses 78 'tp 3 does not divide' tp gpt2.yaml --parallel.tp 3 -n 3 --train.global_batch 6
claim 'nodes of a run' refuses 64 '--nodes: a run is explained on the nodes that it had' ./zero1 --nodes 2
claim 'a comparison with nothing' refuses 74 'nothing: No such file' gpt2.yaml --compare nothing
finish
