#!/bin/bash
# test_bench_train.sh -- bench/train: what the programs print is read, and judged as the table says. No PyTorch is needed:
# contestants here always take the same time.
#
#   tests/test_bench_train.sh BUILD
. "$(dirname "$0")/harness.sh"
compare=$source_dir/bench/train/compare
command -v python3 >/dev/null || { echo 'skipped: no python3'; exit 0; }
cd "$tmp" || exit 1

# --- recorded rows: ratios, shares, demands -------------------------------------------------------------------------
cat >record.py <<'PY'
import json, sys
f32, bf16, t256 = ('GPT-2 124M, B4 %s' % w for w in ('T64, f32', 'T64, bf16', 'T256, f32'))
ddp = 'DDP 124M, B4 T64 in all, 2 ranks x 1 thread, f32'
rows = []
def add(family, work, *passes, who=None):
    for p, figures in enumerate(passes):
        rows.append(dict(who=who or family, family=family, work=work, of_pass=p, figures=figures))
add('lockstep', f32, dict(ms=1000), dict(ms=900), dict(ms=1100))
add('PyTorch 1.13', f32, dict(ms=1400), dict(ms=1350), dict(ms=1320), who='PyTorch 1.13.1, malloc')
add('newest PyTorch', f32, dict(ms=1300), dict(ms=1300), dict(ms=1300), who='PyTorch 9.9 eager, jemalloc')
add('newest PyTorch', f32, dict(ms=990), dict(ms=990), dict(ms=990), who='PyTorch 9.9 compiled, jemalloc')
add('newest PyTorch', f32, dict(ms=100), who='PyTorch 9.9 in one pass of three')
add('llm.c', f32, dict(ms=5000))
add('limit', f32, dict(ms=920), dict(ms=920), dict(ms=920))
add('lockstep', bf16, dict(ms=600))
add('PyTorch 1.13', bf16, dict(ms=800))
add('lockstep', t256, dict(ms=4000, rss=2400))
add('PyTorch 1.13', t256, dict(ms=5000, rss=4000))
add('lockstep', ddp, dict(ms=1100, lost=2.5))
add('lockstep', ddp + ', zero.stage 1', dict(ms=1000))
add('PyTorch 1.13', ddp, dict(ms=2200))
add('lockstep', 'tokenizer of GPT-2 on sotu, 1 thread', dict(mb_s=19.0))
json.dump(dict(machine='m', commit='c', command='x', missing=['llm.c: not here'], notes=['same work: yes'], failed={}, rows=rows), open(sys.argv[1], 'w'))
PY
python3 record.py rows.json || exit 1
"$compare" --from rows.json >out || exit 1
row() { grep -qF "$1" out; }
claim 'a ratio is of medians, its span of passes' \
    row '| GPT-2 124M, B4 T64, f32 | 1000 ms | PyTorch 1.13.1, malloc | 1350 ms | 1.35x | 1.20-1.50 | >= 1.3x | met | 920.0 ms |'
claim 'of one family the best counts, of those that were there in every pass' \
    row '| GPT-2 124M, B4 T64, f32 | 1000 ms | PyTorch 9.9 compiled, jemalloc | 990.0 ms | 0.99x | 0.90-1.10 | >= 1x | **missed** | 920.0 ms |'
claim 'a demand that is missed is marked' row '| GPT-2 124M, B4 T64, bf16 | 600.0 ms | PyTorch 1.13 | 800.0 ms | 1.33x | 1.33-1.33 | >= 1.35x | **missed** |'
claim 'a share is of the limit' row '| GPT-2 124M, B4 T64, f32, share of the limit | 1000 ms | limit | 920.0 ms | 92.0 % | 83.6-102 | >= 90 % | met |'
claim 'nothing is demanded of llm.c' row '| GPT-2 124M, B4 T64, f32 | 1000 ms | llm.c | 5000 ms | 5.00x | 5.00-5.00 |  |  | 920.0 ms |'
claim 'less memory is better' row 'peak memory (max RSS) | 2400 MiB | PyTorch 1.13 | 4000 MiB | 0.60x | 0.60-0.60 | <= 0.8x | met |'
claim 'less time lost is better' row 'step time lost to communication | 2.500 % |  |  | 2.5 % | 2.5-2.5 | <= 3 % | met |'
claim 'one work of ours is beside another' row '2 ranks x 1 thread to 1 x 2 | 1100 ms | lockstep | 1000 ms | 1.10x | 1.10-1.10 | <= 1.17x | met |'
claim 'a shared update is beside the DDP of others' \
    row '2 ranks x 1 thread, f32, zero.stage 1 | 1000 ms | PyTorch 1.13 | 2200 ms | 2.20x | 2.20-2.20 | >= 2x | met |'
claim 'a figure alone has its unit' row '| tokenizer of GPT-2 on sotu, 1 thread | 19.0 MB/s |  |  | 19 MB/s | 19-19 | >= 20 MB/s | **missed** |'
claim 'the footer counts what is demanded, and what is not there' grep -qE '^8 of 11 cells met, [0-9]+ not measured$' out
claim 'who is missing is named' grep -qx 'without llm.c: not here' out
claim 'cells can be chosen' test "$("$compare" --from rows.json --cell 'peak memory' | grep -c '^| GPT-2')" = 1
claim 'a cell that there is not ends it' fails_with 1 'no cell matches' "$compare" --from rows.json --cell 'carrier pigeon'
printf 'before\n<!-- begin: make bench-train -->\nold\n<!-- end: make bench-train -->\nafter\n' >doc.md
"$compare" --from rows.json --write doc.md >/dev/null || exit 1
claim 'the table goes between its two lines of a document' \
    test "$(grep -cE '^(before|after|Machine: m\.|Same work: yes\.|.* begin: make bench-train .*|8 of 11 cells .*)$' doc.md)" = 6
claim 'and replaces what was there' sh -c '! grep -q old doc.md'

# --- programs: what they print is read -----------------------------------------------------------------------------------
mkdir -p fake/bench fake/peers
program() { # path, output of a run; steps get their number of lines
    cat >"fake/$1" <<SH
#!/bin/bash
case \$1 in --version) echo 'lockstep 9.9.9'; exit ;; -c) exit ;; esac
while [ \$# -gt 0 ]; do case \$1 in --save) : >"\$2" ;; --dtype) dtype=\$2 ;; esac; shift; done
$2
SH
    chmod +x "fake/$1"
}
steps='[ "$dtype" != bf16 ] || L=$H; echo step,sync,ms,loss; for s in 1 2 3 4 5 6; do echo "$s,$((s % 2)),$((s <= 2 ? 9000 : s % 2 ? T : A)),$L"; done; echo max_rss_mib,512.5'
program lockstep ':'
program bench/bench_gpt "T=100 A=98 L=2.5 H=2.51; $steps"
program peers/python3 "T=220 A=180 L=2.5 H=2.5; $steps"
printf '%s\n1.13.9\n\n' "$tmp/fake/peers/python3" >fake/peers/torch.debian
echo 'none here' >fake/peers/torch.newest.missing
fake() { "$compare" --build fake --passes 2 "$@" 2>/dev/null; }
fake --cell '2 ranks x 1 thread, (f32|bf16)' --rows kept.json >out || exit 1
claim 'warm-up is left out; steps in step and alone are told apart' row '| DDP 124M, B4 T64 in all, 2 ranks x 1 thread, f32 | 100.0 ms | PyTorch 1.13.9, malloc, huge pages, passive | 220.0 ms | 2.20x | 2.20-2.20 | >= 2x | met |'
claim 'what is lost is the difference, and what a peer loses stands beside it' \
    row 'lost to communication | 2.000 % | PyTorch 1.13.9, malloc, huge pages, passive | 18.2 % | 2 % | 2-2 | <= 3 % | met |'
did() { grep -q "^same work: losses of 6 steps of Lockstep and PyTorch 1.13.9 in $1 differ by $2 at most$" out; }
claim 'that the same work is done is tried first' did f32 0.0e+00
claim 'in both types' did bf16 4.0e-03
claim 'a PyTorch that is not there is named' grep -qx 'without PyTorch: none here' out
claim 'rows that were kept give the same table' diff <(grep '^|' out) <("$compare" --from kept.json --cell '2 ranks x 1 thread, (f32|bf16)' | grep '^|')
program peers/python3 "T=220 A=180 L=2.6 H=2.6; $steps"
claim 'another loss is other work, and nothing is measured' sh -c "! '$compare' --build fake --cell '2 ranks x 1 thread, f32' >out 2>&1 && grep -q 'NOT THE SAME WORK' out && ! grep -q '^|' out"
program bench/bench_gpt "T=100 A=98 L=2.5 H=2.5; $steps"
program peers/python3 "T=220 A=180 L=2.5 H=2.5; $steps"
claim 'bf16 that is f32 is noticed' sh -c "! '$compare' --build fake --cell '2 ranks x 1 thread, bf16' >out 2>&1 && grep -q 'bf16 is f32: NOT THE SAME WORK' out"
program bench/bench_gpt "T=100 A=98 L=2.5 H=2.51; $steps"
program peers/python3 'echo oh dear >&2; exit 3'
fake --cell '2 ranks x 1 thread, f32' >out || exit 1
claim 'a peer that fails is told' grep -q '^failed: PyTorch 1.13.9, DDP 124M, .*: oh dear$' out
program peers/python3 'echo hello'
fake --cell '2 ranks x 1 thread, f32' >out || exit 1
claim 'and one that prints something else' grep -q '^failed: PyTorch 1.13.9, DDP 124M, .*: no figures: hello$' out

program bench/bench_generate 'echo "# median"; echo "gpt2 1 32 9.0 9.00 9.0 9.00 9.00 9.0 91.5 %"; echo "gpt2 1 1000 9.0 9.00 9.0 9.00 9.00 9.0 85.5 %"'
fake --cell generate >out || exit 1
claim 'the least share of a context counts' row '| 85.5 % |  |  | 85.5 % | 85.5-85.5 | >= 80 % | met |'

# --- tuning: the quickest setting is kept, and used ---------------------------------------------------------------------------
program peers/python3 "T=\$([ -n \"\${GLIBC_TUNABLES:-}\" ] && echo 300 || [ -n \"\${OMP_WAIT_POLICY:-}\" ] && echo 150 || echo 200) A=1 L=2.5 H=2.5; $steps"
fake --cell 'B4 T64, f32' --tune >out || exit 1
claim 'every setting is tried' test "$(grep -c '^PyTorch 1.13.9 | GPT-2 124M, B4 T64, f32 | .* ms$' out)" -ge 4
claim 'the quickest is kept' grep -q '"PyTorch 1.13.9 | GPT-2 124M, B4 T64, f32": "malloc, passive"' fake/peers/train-settings.json
fake --cell 'B4 T64, f32$' >out || exit 1
claim 'and used from then on' row '| PyTorch 1.13.9, malloc, passive | 150.0 ms |'

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
