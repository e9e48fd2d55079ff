#!/bin/bash
# test_bench_train.sh -- bench/train: what the programs print is read, and judged as the table says. No PyTorch is needed:
# contestants here always take the same time.
#
#   tests/test_bench_train.sh BUILD
. "$(dirname "$0")/harness.sh"
compare=$source_dir/bench/train/compare
command -v python3 >/dev/null || { echo 'skipped: no python3'; exit 0; }
cd "$tmp" || exit 1

# --- made-up rows: ratios, results, targets, rooflines ----------------------------------------------------------------
cat >record.py <<'PY'
import json, sys
kind = sys.argv[2] if len(sys.argv) > 2 else ''
f32, bf16, t256 = ('GPT-2 124M, B4 %s' % w for w in ('T64, f32', 'T64, bf16', 'T256, f32'))
ddp = 'DDP 124M, B4 T64 total, 2 ranks x 1 thread, f32'
rows = []
def add(family, work, *passes, who=None):
    for p, figures in enumerate(passes):
        rows.append(dict(who=who or family, form=who or family, family=family, work=work, of_pass=p, figures=figures))
add('lockstep', f32, dict(ms=1000), dict(ms=900), dict(ms=1100))
add('PyTorch 1.13', f32, dict(ms=1400), dict(ms=1350), dict(ms=1320), who='PyTorch 1.13.1, malloc')
add('newest PyTorch', f32, dict(ms=1300), dict(ms=1300), dict(ms=1050), who='PyTorch 9.9 eager, jemalloc')
add('newest PyTorch', f32, dict(ms=1250), dict(ms=1250), dict(ms=1250), who='PyTorch 9.9 compiled, jemalloc')
add('llm.c', f32, dict(ms=5000))
add('hand-written', f32, dict(ms=920), dict(ms=920), dict(ms=920))
add('lockstep', bf16, dict(ms=600), dict(ms=600), dict(ms=600))
add('PyTorch 1.13', bf16, dict(ms=800), dict(ms=830), dict(ms=830))
add('newest PyTorch', bf16, dict(ms=500), dict(ms=500), dict(ms=599))
add('lockstep', t256, dict(ms=4000, rss=2400))
add('PyTorch 1.13', t256, dict(ms=5000, rss=4800))
add('lockstep', t256 + ', as it comes', dict(ms=4000, rss=2400))
add('PyTorch 1.13', t256 + ', as it comes', dict(ms=7000, rss=2600))
add('lockstep', ddp, dict(ms=1100, lost=2.5), dict(ms=1100, lost=3.5))
add('lockstep', ddp + ', zero.stage 1', dict(ms=1000))
add('PyTorch 1.13', ddp, dict(ms=2200, lost=3.0), dict(ms=2200, lost=3.0))
if kind == 'sharded':
    add('newest PyTorch', ddp + ', zero.stage 1', dict(ms=1900), who='PyTorch 9.9 fully_shard, jemalloc')
add('lockstep', 'tokenizer of GPT-2 on sotu, 1 thread', dict(mb_s=22.0), dict(mb_s=19.0))
rates = [[w, n, 4096, 20.0] for w in ('read', 'write', 'copy') for n in (1, 2)] + [
    [d, n, 0, (1e9 if kind != 'impossible' else 70.0) * n] for d in ('f32', 'bf16') for n in (1, 2)]
json.dump(dict(head='Run: made up.\n', missing=['llm.c: not here'], notes=['same work: yes'], failed={}, rows=rows, rates=rates), open(sys.argv[1], 'w'))
PY
made() { python3 record.py rows.json "${1:-}" && "$compare" --from rows.json >table 2>err; }
row() { grep -qF "$1" table; }
made || exit 1
claim 'a row has figure, fastest peer, ratio of medians, span of the passes, target, roofline and hand-written time' \
    row '| GPT-2 124M, B4 T64, f32 | 1000 ms | PyTorch 1.13.1, malloc | 1350 ms | 1.35x | 1.20-1.50 | ahead | 1.3x, not reached | 87.1 ms | 9 % | 920.0 ms |'
claim 'in every pass the fastest of that pass counts: one pass behind, and the row is not ahead' \
    row '| GPT-2 124M, B4 T64, f32 | 1000 ms | PyTorch 9.9 compiled, jemalloc | 1250 ms | 1.25x | 0.95-1.39 | level | 1x, not reached |'
claim 'a target is reached where every pass reaches it' row '| GPT-2 124M, B4 T64, bf16 | 600.0 ms | PyTorch 1.13 | 830.0 ms | 1.38x | 1.33-1.38 | ahead | 1.35x, not reached |'
claim 'a row with every pass behind is behind' row '| newest PyTorch | 500.0 ms | 0.83x | 0.83-1.00 | behind | 1x, not reached |'
claim 'memory is beside a PyTorch as it comes' row 'as it comes, peak memory (max RSS) | 2400 MiB | PyTorch 1.13 | 2600 MiB | 1.08x | 1.08-1.08 | ahead | 1.25x, not reached |'
claim 'and beside the tuned one in a row that says so' row 'peak memory (max RSS), PyTorch tuned for speed | 2400 MiB | PyTorch 1.13 | 4800 MiB | 2.00x |'
claim 'time lost in every pass is beside what a peer loses in it' row 'step time lost to communication | 3.000 % | PyTorch 1.13 | 3.000 % |  | 2.5-3.5 % | level | at most 3 %, not reached |'
claim 'our own other way is information, and nobody is ahead' row '| DDP 124M, B4 T64 total, f32, 2 ranks x 1 thread | 1100 ms | lockstep, 1 ranks x 2 threads | 1000 ms | 0.91x |'
claim 'a sharded update is not beside a DDP that shards nothing' row '2 ranks x 1 thread, f32, zero.stage 1 | 1000 ms | no PyTorch 1.13 |  |  |  |  |  |'
claim 'a figure alone has its unit, and every pass counts' row '| tokenizer of GPT-2 on sotu, 1 thread | 20.5 MB/s | none |  |  | 19-22 MB/s |  | at least 20 MB/s, not reached |'
claim 'what was not measured stands there' row '| GPT-2 124M, B1 T1024, f32 | not measured |'
claim 'the end counts' grep -qE '^[0-9]+ rows: 7 ahead, 2 level, 1 behind, 9 without a peer to compare with, [0-9]+ not measured; 4 of 12 targets reached in every pass$' table
claim 'who is missing is named' grep -qx 'without llm.c: not here' table
claim 'rows can be chosen' test "$("$compare" --from rows.json --cell 'as it comes, peak memory' | grep -c '^| GPT-2')" = 2
claim 'a row that there is not ends it' fails_with 1 'no row matches' "$compare" --from rows.json --cell 'carrier pigeon'
made sharded || exit 1
claim 'but beside one that does' row '2 ranks x 1 thread, f32, zero.stage 1 | 1000 ms | PyTorch 9.9 fully_shard, jemalloc | 1900 ms | 1.90x | 1.90-1.90 | ahead |'
made impossible
claim 'a roofline that is exceeded ends the program' test $? = 1
claim 'and is said' grep -q '^compare: the bound is wrong: GPT-2 124M, B4 T64, f32 took 900, and its roofline says that nothing takes less than ' err
printf 'before\n<!-- begin: make bench-train -->\nold\n<!-- end: make bench-train -->\nafter\n' >doc.md
claim 'recorded rows are not published' fails_with 1 '--write publishes a whole table, and --from leaves rows out' "$compare" --from rows.json --write doc.md
claim 'nor a part of them' fails_with 1 'and --cell leaves rows out' "$compare" --cell 'B4 T64' --write doc.md
claim 'nor --quick as the whole' fails_with 1 '--quick leaves rows out' "$compare" --quick --write doc.md
claim 'nor fewer than three passes' fails_with 1 'needs at least 3 passes, here are 2' "$compare" --passes 2 --write doc.md

# --- programs: what they print is read -----------------------------------------------------------------------------------
# In a copy, so that settings that are found do not go into the sources.
mkdir -p repo/fake/bench repo/fake/peers && cp -r "$source_dir/bench" repo && cd repo || exit 1
compare=$PWD/bench/train/compare table=$tmp/table
row() { grep -qF "$1" "$table"; }
export BENCH_PROCESSOR='Made-up 9000'
if ! "${CC:-cc}" -O1 -o fake/peers/pin "$source_dir/bench/peers/pin.c"; then exit 1; fi
program() { # path, output of a run; a PyTorch puts its ranks on their cores by itself
    cat >"fake/$1" <<SH
#!/bin/bash
case \$1 in --version) echo 'lockstep 9.9.9'; exit ;; -c) exit ;; esac
ranks=1 threads=1
for ((i = 1; i < \$#; i++)); do j=\$((i + 1)); case \${!i} in --ranks) ranks=\${!j} ;; --threads) threads=\${!j} ;; --save) : >"\${!j}" ;; --dtype) dtype=\${!j} ;; esac; done
case \$0 in *python3) for ((r = 0; r < ranks; r++)); do RANK=\${ONE_CORE:+0}\${ONE_CORE:-\$r} $PWD/fake/peers/pin \$threads true; done ;; esac
$2
SH
    chmod +x "fake/$1"
}
steps='[ "$dtype" != bf16 ] || L=$H; echo step,sync,ms,loss; for s in 1 2 3 4 5 6; do echo "$s,$((s % 2)),$((s <= 2 ? 9000 : s % 2 ? T : A)),$L"; done; echo max_rss_mib,512.5'
# the launcher: every rank by itself, on its cores by the pin of the command
cat >fake/lockstep <<'SH'
#!/bin/bash
[ "$1" != --version ] || { echo 'lockstep 9.9.9'; exit; }
[ "$1" != calibrate ] || { : >"$3"; exit; }
[ "$1" = run ] || exit 0
[ -e "$LOCKSTEP_CALIBRATION" ] || { echo 'not calibrated' >&2; exit 1; }
n=$3
shift 6
for ((r = n - 1; r > 0; r--)); do RANK=$r "$@" >/dev/null; done
RANK=0 exec "$@"
SH
chmod +x fake/lockstep
program bench/bench_gpt "T=100 A=98 L=2.5 H=2.51; $steps"
program peers/python3 "T=220 A=180 L=2.5 H=2.5; $steps"
printf '%s\n1.13.9\n\n' "$PWD/fake/peers/python3" >fake/peers/torch.debian
echo 'none here' >fake/peers/torch.newest.missing
fake() { "$compare" --build fake --passes 2 "$@" 2>/dev/null; }
fake --cell '2 ranks x 1 thread, (f32|bf16)' --rows kept.json >"$table" || exit 1
named='PyTorch 1.13.9, malloc, huge pages, passive'
claim 'warm-up is left out; steps in step and alone are told apart; a setting of another processor is used' \
    row "| DDP 124M, B4 T64 total, 2 ranks x 1 thread, f32 | 100.0 ms | $named | 220.0 ms | 2.20x | 2.20-2.20 | ahead | 2x, reached |"
claim 'what is lost is the difference, and what a peer loses stands beside it' \
    row "lost to communication | 2.000 % | $named | 18.2 % |  | 2-2 % | ahead | at most 3 %, reached |"
claim 'a sharded update is beside ZeroRedundancyOptimizer' row "zero.stage 1 | 100.0 ms | PyTorch 1.13.9 ZeroRedundancyOptimizer, malloc"
claim 'settings of another processor are told' grep -q '^PyTorch: 0 of [0-9]* pairs of a form and a work have settings that were tuned on this kind of processor' "$table"
did() { grep -q "^same work: losses of 6 steps of Lockstep and PyTorch 1.13.9 in $1 differ by $2 at most$" "$table"; }
claim 'that the same work is done is tried first' did f32 0.0e+00
claim 'in both types' did bf16 4.0e-03
claim 'and where it is sharded' grep -q '^same work: .* PyTorch 1.13.9 ZeroRedundancyOptimizer in f32, zero.stage 1 differ by 0.0e+00 at most$' "$table"
claim 'a PyTorch that is not there is named' grep -qx 'without PyTorch: none here' "$table"
claim 'rows that were kept give the same table' diff <(grep '^|' "$table") <("$compare" --from kept.json --cell '2 ranks x 1 thread, (f32|bf16)' | grep '^|')
ONE_CORE=0 fake --cell '2 ranks x 1 thread, f32' >"$table"
claim 'a peer whose ranks are not on their cores does not count' grep -q '^failed: PyTorch 1.13.9, DDP 124M, .*: ranks are not pinned as everybody.s are: expected rank 0 on ' "$table"
program peers/python3 "T=220 A=180 L=2.6 H=2.6; $steps"
claim 'another loss is other work, and nothing is measured' sh -c "! '$compare' --build fake --cell '2 ranks x 1 thread, f32' >out 2>&1 && grep -q 'NOT THE SAME WORK' out && ! grep -q '^|' out"
program bench/bench_gpt "T=100 A=98 L=2.5 H=2.5; $steps"
program peers/python3 "T=220 A=180 L=2.5 H=2.5; $steps"
claim 'bf16 that is f32 is noticed' sh -c "! '$compare' --build fake --cell '2 ranks x 1 thread, bf16' >out 2>&1 && grep -q 'bf16 is f32: NOT THE SAME WORK' out"
program bench/bench_gpt "T=100 A=98 L=2.5 H=2.51; $steps"
program peers/python3 'echo oh dear >&2; exit 3'
fake --cell '2 ranks x 1 thread, f32' >"$table" || exit 1
claim 'a peer that fails is told' grep -q '^failed: PyTorch 1.13.9, DDP 124M, .*: oh dear$' "$table"
program peers/python3 'echo hello'
fake --cell '2 ranks x 1 thread, f32' >"$table" || exit 1
claim 'and one that prints something else' grep -q '^failed: PyTorch 1.13.9, DDP 124M, .*: no figures: hello$' "$table"

program bench/bench_generate 'echo "# median"; echo "gpt2 1 32 9.0 9.00 9.0 9.00 9.00 9.0 91.5 %"; echo "gpt2 1 1000 9.0 9.00 9.0 9.00 9.00 9.0 85.5 %"'
fake --cell generate >"$table" || exit 1
claim 'the least share of a context counts' row '| 85.5 % | none |  |  | 85.5-85.5 % |  | at least 80 %, reached |'

program peers/python3 "T=\${MALLOC_TOP_PAD_:-100}; A=1 L=2.5 H=2.5; $steps"
fake --cell 'as it comes, peak memory' >"$table" || exit 1
claim 'a peer that has its memory compared runs as it comes' row '| 512.5 MiB | PyTorch 1.13.9, as it comes | 512.5 MiB | 1.00x | 1.00-1.00 | level |'

# --- tuning: the quickest setting is kept in the repository for this processor, and used --------------------------------------
program peers/python3 "T=200; [ -z \"\${OMP_WAIT_POLICY:-}\" ] || T=150; [ -z \"\${GLIBC_TUNABLES:-}\" ] || T=300; A=1 L=2.5 H=2.5; $steps"
fake --cell 'GPT-2 124M, B4 T64, f32' --tune >"$table" || exit 1
claim 'every setting is tried' test "$(grep -c '^PyTorch 1.13.9 | GPT-2 124M, B4 T64, f32 | .* ms$' "$table")" -ge 5
kept() { python3 -c '
import json, sys
of = json.load(open("bench/train/settings.json"))
mine = [k for k in of if k.startswith("Made-up 9000, ")]
assert len(mine) == 1 and of[mine[0]][sys.argv[1]] == json.loads(sys.argv[2]), of[mine[0]]
assert any(k.startswith("AMD EPYC") for k in of)' "$1" "$2"; }
claim 'the quickest is kept under the name of the processor' kept 'PyTorch 1.13 | GPT-2 124M, B4 T64, f32' '{"setting": "malloc, passive"}'
fake --cell 'GPT-2 124M, B4 T64, f32$' >"$table" || exit 1
claim 'and used from then on' row '| PyTorch 1.13.9, malloc, passive | 150.0 ms |'
claim 'as one of this processor' sh -c "! grep -q '^PyTorch: ' '$table'"
fake --cell 'GPT-2 124M, B4 T256, bf16$' >"$table" || exit 1
claim 'a work that was not tuned has the setting of most works that were' row 'B4 T256, bf16 | 100.0 ms | PyTorch 1.13.9, malloc, passive | 150.0 ms |'
claim 'and that is told' grep -q '^PyTorch: 0 of 1 pairs of a form and a work have settings that were tuned on this kind of processor; the others have those of most other works' "$table"
printf '%s\n9.9\n\n' "$PWD/fake/peers/python3" >fake/peers/torch.newest
fake --cell 'GPT-2 124M, B4 T64, f32' --peer 'PyTorch 9' --tune >"$table" || exit 1
tried() { grep "^PyTorch 9.9 $1 | " "$table" | cut -d'|' -f3 | cut -d: -f1 | sort | xargs; }
claim 'what is compiled tries the two that lead' test "$(tried compiled)" = "$(echo as it comes malloc, passive)"
rm fake/peers/torch.newest
program bench/bench_ddp_step 'echo "2 10.0 9.0"'
program peers/python3 'case "$*" in *ddp_step.py*) for r in 0 1; do RANK=$r fake/peers/pin $(($(nproc) > 1 ? $(nproc) / 2 : 1)) true; done ;; esac
    case "$*" in *--static*) echo "2 90 80" ;; *--view*) echo "2 100 90" ;; *) echo "2 120 90" ;; esac'
"$compare" --build fake --passes 2 --cell 'MLP, DDP step, 2 ranks' --tune >"$table" 2>/dev/null
claim "the MLP's step is tuned, with its options" kept 'PyTorch 1.13 | exercise MLP, DDP step, 2 ranks' '{"options": "--adam fused --view --static", "setting": "as it comes"}'

# --- the programs themselves ----------------------------------------------------------------------------------------------------
A=(--n_layer 1 --n_head 2 --d_model 16 --vocab 33 --batch 2 --tokens 5)
"$build/bench/bench_gpt" "${A[@]}" --steps 3 >one || exit 1
claim 'bench_gpt prints a line a step and its memory' test "$(grep -cE '^([1-3],1,[0-9.]+,[0-9.]+|step,sync,ms,loss|max_rss_mib,[0-9.]+)$' one)" = 5
claim 'two ranks take turns with and without communication' \
    test "$("$build/bench/bench_gpt" "${A[@]}" --steps 4 --ranks 2 --sync alternate | grep -cE '^[13],1,|^[24],0,')" = 4
if [ "$("$build/bench/bench_gpt_limit" 1 8 f32 1 16 33 2>&1)" != 'bench_gpt_limit: this build has no oneDNN' ]; then
    claim 'the limit is the sum of its parts' sh -c "'$build/bench/bench_gpt_limit' 1 8 f32 1 16 33 | awk -F, '
        /^[0-9]/ { d = \$1 - \$2 - \$3 - \$4; ok = \$1 > 0 && d < 0.01 && d > -0.01 } END { exit !ok }'"
fi
finish
