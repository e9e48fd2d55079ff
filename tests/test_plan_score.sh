#!/bin/bash
# test_plan_score.sh -- lockstep plan: what a model costs, and predictions of published measurements: the configuration alone
# decides, closed forms have the digits of their papers, bad rows are named with their line, and fits repeat to the byte.
#
#   tests/test_plan_score.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
rows=$source_dir/tests/golden/plan_rows.csv
cd "$tmp" || exit 1
plan() { timeout -k 5 120 "$lockstep" plan "$@"; }

# --- models
plan gpt2-124m >gpt2.txt
claim 'GPT-2 has its parameters' grep -q '^gpt2-124m: 124,439,808 parameters' gpt2.txt
claim 'JSON has the numbers of the text' test "$(plan llama3-8b --json | python3 -c 'import json,sys; j = json.load(sys.stdin); print(j["params"], round(j["flops_full"] / 1e9, 1), j["seq"])')" = '8030261248 57.9 8192'
claim 'a shorter sequence has fewer operations' test "$(plan llama3-8b --seq 4096 | awk '/causal mask/ {print ($1 < 51.5)}')" = 1
claim '--list names each model' test "$(plan --list | while read -r name; do plan "$name" >/dev/null && echo ok; done | sort -u)" = ok
claim '--list --json' test "$(plan --list --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)))')" = "$(plan --list | wc -l)"
claim 'an unknown model, with the nearest' fails_with 78 'the nearest is llama3-70b' plan lama3-70b
claim 'no model' fails_with 64 'expected one (a preset, or a config.json), its sizes (--layers ...), --score FILE or --check RUN' plan
claim 'two queries at once' fails_with 64 '--score takes a file alone' plan llama3-8b --score "$rows"

# --- predictions
plan --score "$rows" >score.txt || fail=1
claim 'the columns' test "$(head -1 score.txt)" = 'id,metric,predicted,low90,high90,measured,error_pct'
number() { awk -F, -v id="$1" -v column="$2" '$1 == id { print $column; exit }' "${3:-score.txt}"; }
within() { awk -v e="$(number "$1" 7)" -v most="$2" 'BEGIN { exit !(e != "" && e <= most && e >= -most) }' || { grep "^$1," score.txt; return 1; }; }
for id in ptdp-0001 mtnlg-0001 bloom-0007 mosaic-0001 vtrain-multi-0101 nemo-fp8-0009; do claim "$id within 5 %" within $id 5; done
for id in zb-bubble-0001 zb-bubble-0002 zb-bubble-0003 zb-bubble-0004; do claim "$id to four digits" test "$(printf %.4f "$(number $id 3)")" = "$(printf %.4f "$(number $id 6)")"; done
for id in korth-fig1-0001 korth-fig1-0002 korth-fig1-0009; do claim "$id: Figure 1 of Korthikanti et al." within $id .001; done
claim 'a rank of Megatron-LM has its bytes' within megatron-ci-mem-0103 1
claim 'its peak' within megatron-ci-mem-0104 3
mib=megatron-ci-mem
for id in 0004 0029 0081 0093 0193 0239 0260 0290 0292; do claim "$mib-$id: bytes between steps that PyTorch's allocator counted" within $mib-$id 1; done
for id in 0005 0082 0094 0194 0240 0291 0293; do claim "$mib-$id: its peak" within $mib-$id 3; done
claim 'the peak with weights in 8 bits, latent attention and multi-token prediction' within $mib-0261 5
claim 'without ZeRO, DeepSpeed copies all gradients to 32 bits' within bloom-0066 8
claim 'on 8 V100 an all_reduce of 8 MB still takes LL128' within nccl-lut-0147 12
claim 'a label out-of-memory is right' within bloom-0146 0
claim 'each low is at most predicted, and each high at least' test -z "$(awk -F, '/^[a-z].*-[0-9]+,/ && !($4 <= $3 && $3 <= $5)' score.txt)"
cat >summary.py <<'PY'
import csv, statistics, sys
family = {r["id"]: r["family"] if r.get("family") else r["id"].rsplit("-", 1)[0] for r in csv.DictReader(open(sys.argv[1]))}
of, shown = {"total": []}, {}
for line in open("score.txt"):
    cell, word = line.strip().split(","), line.split()
    if len(cell) == 7 and cell[0] in family:
        low, high, measured, error = map(float, cell[3:])
        for f in (family[cell[0]], "total"): of.setdefault(f, []).append((abs(error), low <= measured <= high))
    elif len(word) == 7 and word[1].isdigit(): shown[word[0]] = [float(w) for w in word[1:6]]
assert shown.keys() == of.keys() and len(shown) > 10, (shown.keys(), of.keys())
for f, rows in of.items():
    errors = [e for e, _ in rows]
    want = [len(rows), statistics.mean(errors), statistics.median(errors), max(errors), 100 * statistics.mean(c for _, c in rows)]
    assert all(abs(a - b) <= .051 for a, b in zip(want, shown[f])), (f, want, shown[f])
assert 0 < min(shown[f][4] for f in shown) < 100
PY
claim 'a line per family is mean, median, worst error and coverage of its rows, the last one of all' python3 summary.py "$rows"
claim 'what is not predicted has a reason' grep -q "^not predicted: llama3-0008,job_interruptions_54_days: 'job_interruptions_54_days' is not predicted" score.txt
claim 'each row is predicted or refused' test "$(grep -cE '^[a-z0-9-]+-[0-9]{4},|^not predicted: ' score.txt)" = "$(($(wc -l <"$rows") - 1))"
sed -n '1p; s/^\(zb-bubble-0002,.*,1.5B\),22,/\1,2,/p' "$rows" >few.csv
claim 'two layers on eight stages: a reason' has_line 'not predicted: zb-bubble-0002,bubble_rate: 2 layers are too few for pp 8' plan --score few.csv
claim 'the same twice, to the byte' cmp score.txt <(plan --score "$rows")

# The measured value changes no prediction; nor do other rows, but for stage times that a bubble follows from.
python3 - "$rows" <<'PYTHON'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
def write(name, rows, columns):
    with open(name, "w", newline="") as f:
        w = csv.DictWriter(f, columns, extrasaction="ignore")
        w.writeheader()
        w.writerows(rows)
columns = list(rows[0])
write("last.csv", [r for r in rows if r["id"] == "vtrain-multi-0101"], columns[::-1])
for r in rows:
    if not r["measured_metric"].startswith("stage_"):
        r["measured_value"] = str(3 * float(r["measured_value"]) + 1)
write("other.csv", rows, columns)
PYTHON
plan --score other.csv >other.txt
claim 'measured values change no prediction' cmp <(awk -F, '/^[a-z].*-[0-9]+,/ {print $1, $3, $4, $5}' score.txt) <(awk -F, '/^[a-z].*-[0-9]+,/ {print $1, $3, $4, $5}' other.txt)
plan --score last.csv >last.txt
claim 'one row alone, its columns reversed and its lines ended by CRLF' test "$(number vtrain-multi-0101 3 last.txt)" = "$(number vtrain-multi-0101 3)"

# --- bad input
bad() { sed "$1" "$rows" >bad.csv; }
bad '3s/,51200,/,many,/'
claim 'a size that is no number, with its line' fails_with 65 "bad.csv:3: vocab is 'many'; expected a number of 0 or more" plan --score bad.csv
bad '3s/,24,2304,/,24.5,2304,/'
claim 'a part of a layer' fails_with 65 "bad.csv:3: layers is '24.5'; expected a whole number" plan --score bad.csv
bad '4s/$/,more/'
claim 'a cell too many' fails_with 65 'bad.csv:4: 31 cells; expected 30' plan --score bad.csv
bad '1s/measured_value/value/'
claim 'a column that is not there' fails_with 65 "no column 'measured_value'" plan --score bad.csv
bad '$s/"$//'
claim 'a quote that does not end' fails_with 65 'a quoted cell does not end' plan --score bad.csv
: >empty.csv
claim 'an empty file' fails_with 65 'empty.csv: empty' plan --score empty.csv
claim 'no file' fails_with 74 'absent.csv' plan --score absent.csv

# --- the fit
# The rows of few.csv, changed by the lines of Python in standard input, which have them as `rows`, in a file.
few_rows_as() {
    cat - <(printf '%s\n' 'with open(sys.argv[1], "w", newline="") as f:' '    w = csv.DictWriter(f, list(rows[0]))' '    w.writeheader()' '    w.writerows(rows)') |
        cat <(printf '%s\n' 'import csv, sys' 'rows = list(csv.DictReader(open("few.csv")))') - | python3 - "$1"
}
fit() { timeout -k 5 300 "$build/tools/fit_planner" "$@"; }
grep -v ',bridge-' "$rows" >few.csv
fit few.csv one.c >one.txt
fit few.csv two.c >two.txt
claim 'a fit repeats to the byte' cmp one.c two.c
claim 'its report, too' cmp one.txt two.txt
claim 'it writes constants of each stack' test "$(grep -c '/\* megatron-a100 \*/' one.c)" = 1
claim 'a fit without rows' fails_with 64 'usage: fit_planner ROWS.csv [constants.c [points.csv [DIVISION|models [TERMS.csv]]]]' fit
grep '^id,\|^nccl' "$rows" >nccl.csv
claim 'a fit without steps' fit nccl.csv nccl.c nccl-points.csv 0 nccl-terms.csv
claim 'has no parts of steps' test "$(wc -l <nccl-terms.csv)" = 1

# --- points: what the constants of the other folds predict, one line per row that was used
points=$source_dir/docs/planner-points.csv
draw() { "$source_dir/tools/draw-fit" "$@"; }
differ() { ! cmp -s "$1" "$2"; }
fit few.csv one.c one.csv >one.txt
fit few.csv two.c two.csv >two.txt
claim 'points repeat to the byte' cmp one.csv two.csv
# Rows divided in another way: one configuration is in one fold there, too, and constants that all rows give stay.
fit few.csv other.c other.csv 1 >other.fit
fit few.csv two.c two.csv 0 >two.txt
folds_of() { python3 - "$@" <<'PYTHON'
import csv, sys
one, other = (list(csv.DictReader(open(f))) for f in sys.argv[1:])
whole = all(len({r["fold"] for r in other if (r["family"], r["what"], r["configuration"]) == k}) == 1
            for k in {(r["family"], r["what"], r["configuration"]) for r in other})
print([r["id"] for r in one] == [r["id"] for r in other], whole, [r["fold"] for r in one] != [r["fold"] for r in other])
PYTHON
}
claim 'division 0 is the committed one' cmp one.csv two.csv
claim 'another division moves whole configurations' test "$(folds_of one.csv other.csv)" = 'True True True'
claim 'and no constant that all rows give' cmp <(sed '/ls_intervals/,$d' one.c) <(sed '/ls_intervals/,$d' other.c)
for bad in -1 x 1x 1001 ''; do claim "no division '$bad'" fails_with 64 "DIVISION is '$bad': expected a whole number from 0 to 1000, or models" fit few.csv two.c two.csv "$bad"; done
claim 'one per row that the report counts' test "$(awk 'NR > 1 {n += $3} END {print n}' one.txt)" = "$(($(wc -l <one.csv) - 1))"

# Parts of each step by the constants of each fold: those that have not seen the step's own sum to what the points have.
fit few.csv two.c two.csv 0 terms.csv >two.txt
claim 'the parts of each step sum to it' python3 - one.csv terms.csv <<'PYTHON'
import csv, sys
points, terms = (list(csv.DictReader(open(f))) for f in sys.argv[1:])
steps = {p["id"]: p for p in points if p["what"] == "step"}
own = {t["id"]: t for t in terms if t["without"] == t["fold"]}
assert set(own) == set(steps) and len(steps) > 10, (len(own), len(steps))
for i, t in own.items():
    total = sum(float(v) for k, v in t.items() if k not in ("id", "stack", "fold", "without"))
    assert abs(total / float(steps[i]["predicted"]) - 1) < 2e-4 and t["fold"] == steps[i]["fold"], (i, total, steps[i])
# All rows of a stack, by each of its sets.
sets = {(t["id"], t["without"]) for t in terms}
stack = {i: p["fold"] for i, p in steps.items() if i.startswith("vtrain-multi")}
assert len(sets) == len(terms) and len(stack) > 2 and all((i, w) in sets for i in stack for w in stack.values()), terms
assert {t["stack"] for t in terms if t["id"] in stack} == {"megatron-a100-vtrain"}, terms
PYTHON

# Where whole models are held out, all layouts of one have one fold, and those of another stack's models start from 0 again.
few_rows_as layouts.csv <<'PYTHON'
rows += [dict(r, id=f"{r['id']}{batch}", global_batch=str(int(r["global_batch"]) * batch)) for r in rows
        if r["id"].startswith("vtrain-") for batch in range(2, 8)]
PYTHON
fit layouts.csv fifths.c fifths.csv >fifths.txt
fit layouts.csv models.c models.csv models >models.txt
folds() { python3 - layouts.csv "$@" <<'PYTHON'
import csv, sys
rows, points = (list(csv.DictReader(open(f))) for f in sys.argv[1:])
rows, folds = {r["id"]: r for r in rows}, {}
for p in points:
    if p["family"] in ("vtrain-multi", "vtrain-single"):
        r = rows[p["id"]]
        folds.setdefault(p["family"], {}).setdefault((r["layers"], r["hidden"], r["heads"]), set()).add(int(p["fold"]))
print(*(f"{family} {len(models)} models, {max(len(f) for f in models.values())} folds of one, {sorted(set.union(*models.values()))};"
        for family, models in sorted(folds.items())))
PYTHON
}
claim 'models are folds' test "$(folds models.csv)" = 'vtrain-multi 3 models, 1 folds of one, [0, 1, 2]; vtrain-single 2 models, 1 folds of one, [0, 1];'
claim 'which fifths are not' sh -c "echo '$(folds fifths.csv)' | grep -qE 'vtrain-multi 3 models, [2-5] folds of one'"
collectives() { awk -F, '$2 == "collective" {print $3, $5}' "$1"; }
claim 'collectives keep their folds' cmp <(collectives models.csv) <(collectives fifths.csv)
claim 'and no constant that all rows give changes' cmp <(sed '/ls_intervals/,$d' fifths.c) <(sed '/ls_intervals/,$d' models.c)

# A measurement changes the constants, and not what is predicted for rows of its own fold.
few_rows_as changed.csv <<'PYTHON'
for r in rows:
    if r["id"] == "vtrain-multi-0101":
        r["measured_value"] = str(1.3 * float(r["measured_value"]))
PYTHON
fit changed.csv changed.c changed-points.csv >/dev/null
fold=$(awk -F, '$3 == "vtrain-multi-0101" {print $5}' one.csv)
claim 'a measurement changes the constants' differ one.c changed.c
claim 'and the predictions of other folds' differ <(awk -F, -v f="$fold" '$5 != f {print $3, $7}' one.csv) <(awk -F, -v f="$fold" '$5 != f {print $3, $7}' changed-points.csv)
claim 'no prediction of its own fold' cmp <(awk -F, -v f="$fold" '$5 == f {print $3, $7}' one.csv) <(awk -F, -v f="$fold" '$5 == f {print $3, $7}' changed-points.csv)

# Steps have collectives: what NCCL takes alone on a device changes the constants of the device's steps, and of no other's.
few_rows_as slow.csv <<'PYTHON'
for r in rows:
    if r["id"].startswith("nccl") and r["gpu"].startswith("A100"):
        r["measured_value"] = str(float(r["measured_value"]) * (3 if r["measured_metric"].endswith("us") else 1 / 3))
PYTHON
fit slow.csv slow.c slow-points.csv >/dev/null
of_family() { awk -F, -v f="$1" '$1 == f {print $3, $7}' "$2"; }
claim 'slow collectives of A100 change its steps' differ <(of_family vtrain-multi one.csv) <(of_family vtrain-multi slow-points.csv)
claim 'and no steps of H100' cmp <(of_family nemo-fp8 one.csv) <(of_family nemo-fp8 slow-points.csv)

# The committed points and the committed intervals are of one fit: percentiles of measured over predicted by family, or Student's t
# over its configurations where that is wider (95th percentiles as printed in tables); rows beyond the percentiles count as on them.
claim 'intervals of constants.c are those of the points' python3 - "$points" "$source_dir/src/plan/constants.c" <<'PYTHON'
import csv, math, re, statistics, sys
table = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833, 10: 1.812, 12: 1.782, 15: 1.753, 20: 1.725,
         25: 1.708, 30: 1.697, 40: 1.684, 60: 1.671, 120: 1.658, 1000: 1.646}
def student(d):
    d = max(d, 1)
    below, above = max(k for k in table if k <= d), min(k for k in table if k >= d)
    return table[below] if below == above else table[below] + (table[above] - table[below]) * (1 / d - 1 / below) / (1 / above - 1 / below)
logs = {}
for r in csv.DictReader(open(sys.argv[1])):
    logs.setdefault((r["family"], r["what"][0]), []).append((math.log(float(r["measured"]) / float(r["predicted"])), r["configuration"]))
def at(v, q):
    k = min(max((len(v) + 1) * q - 1, 0), len(v) - 1)
    i = int(k)
    return v[i] + (v[min(i + 1, len(v) - 1)] - v[i]) * (k - i)
families, stacks = (re.findall(r'\{ "([^"]+)", \'(.)\', ([0-9.]+), ([0-9.]+) \}', part)
                    for part in open(sys.argv[2]).read().split("ls_stack_intervals"))
found = families
assert len(found) == len(logs) > 30, (len(found), len(logs))
for family, what, low, high in found:
    v, n = sorted(x for x, _ in logs[family, what]), len({c for _, c in logs[family, what]})
    ends = at(v, .05), at(v, .95)
    inner = [ends[0] if x < ends[0] else ends[1] if x > ends[1] else x for x in v] # outliers count as on the percentiles
    about = statistics.mean(inner) if n > 1 else 0 # rows of one configuration repeat one error
    spread = student(n - 1) * math.sqrt(sum((x - about) ** 2 for x in inner) / (len(v) - 1)) * math.sqrt(1 + 1 / n)
    for got, want in ((low, min(ends[0], statistics.mean(inner) - spread)), (high, max(ends[1], statistics.mean(inner) + spread))):
        assert abs(float(got) / math.exp(want) - 1) < 2e-3, (family, what, got, math.exp(want))
    if family == "nccl": # the first message of a sweep took 17 times as long as predicted: the other 88 rows say how wide it is
        assert max(x for x in v) > math.log(10) and float(high) < 1.4, (high, v[-1])

# Stacks that have families of their own: at least as many of their rows are within as the interval says.
whole = {"megatron-a100-vtrain": "vtrain-multi", "megatron-a100-node": "vtrain-single", "deepspeed-a100": "bloom", "deepspeed-a100-zero3": "ptdp-zero3",
         "megatron-a100-pipeline": "zb zb-v zb-small zb-optsync", "megatron-v100": "mlm2020", "torchtitan-h100": "torchtitan"}
for stack, _, low, high in stacks:
    v = [math.exp(x) for f in whole.get(stack, "").split() for x, _ in logs[f, "s"]]
    assert not v or .89 <= sum(float(low) - 1e-4 <= x <= float(high) + 1e-4 for x in v) / len(v) <= 1, (stack, low, high, v)
assert len(stacks) == 17, len(stacks)
PYTHON
claim '88 to 92 % of steps and collectives are within the interval of the other fifths' test "$(draw "$points" --table |
    awk '/^all steps and collectives/ {print ($NF >= 88 && $NF <= 92)}')" = 1
mkdir drawn
draw "$points" drawn --table >table.txt
claim 'as many pictures as are committed' test "$(cd drawn && ls)" = "$(cd "$source_dir/docs" && ls fit-*.svg)"
for picture in drawn/*; do claim "docs/${picture#drawn/} is what tools/draw-fit draws" cmp "$picture" "$source_dir/docs/${picture#drawn/}"; done
claim 'a mark per point' test "$(cat drawn/*.svg | grep -o '<use [^>]*y="[0-9.-]*"/>' | wc -l)" = "$(($(wc -l <"$points") - 1))"
claim 'the pictures are well-formed' python3 -c 'import glob, xml.dom.minidom as m; [m.parse(f) for f in glob.glob("drawn/*.svg")]'
for picture in drawn/*; do claim "docs/planner.md shows ${picture#drawn/}" grep -q "](${picture#drawn/})" "$source_dir/docs/planner.md"; done
sed '7s/,[^,]*\(,[^,]*\)$/,-1\1/' "$points" >bad.csv
claim 'a prediction below 0, with its line' fails_with 1 'bad.csv:7: measured ' draw bad.csv drawn
sed '1s/fold/part/' "$points" >bad.csv
claim 'another column' fails_with 1 'expected family,what,id,metric,fold,measured,predicted,configuration' draw bad.csv drawn
sed '2s/^[^,]*/new/' "$points" >bad.csv
claim 'a family that no picture has' fails_with 1 'no picture has new step: add them to PICTURES' draw bad.csv drawn
claim 'no points' fails_with 1 'absent.csv: No such file or directory; write it with' draw absent.csv drawn
finish
