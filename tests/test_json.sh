#!/bin/bash
# test_json.sh -- `--json` of the commands that print numbers (docs/formats.md): JSON that Python reads, with the numbers that the text
# has or that are known otherwise, whatever a file is called; errors stay on stderr, with their exit status. Of train, lab, run --lint,
# explain and tune: test_train_json.sh, test_labs.sh, test_run_lint.sh, test_explain*.sh, test_tune.sh.
#
#   tests/test_json.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
export OMP_NUM_THREADS=1 HOME=$tmp LOCKSTEP_PEAK=$tmp/peak.json
cd "$tmp" || exit 1

# Runs lockstep; stdout goes to `out`.
run() { "$lockstep" "$@" >out 2>err || { cat err; return 1; }; }
# A Python expression over stdout: lines, an object per line, or j, the only one. `text` and `words` are what the command prints
# without --json.
json() {
    python3 - "$@" <<'PY'
import json, os, resource, sys
raw = open("out", encoding="utf-8").read()
try:
    lines = [json.loads(raw)]
except json.JSONDecodeError:
    lines = [json.loads(l) for l in raw.splitlines()]
j = lines[0]
text = open("text", errors="replace", newline="").read() if os.path.exists("text") else ""
words = [l.split() for l in text.splitlines()]
if not eval("(" + sys.argv[1] + ")"):
    print("not so:", sys.argv[1], "in", raw[:2000], text[:2000])
    sys.exit(1)
PY
}
# A sentence, an expression, a command: its JSON.
is() {
    local sentence=$1 expression=$2
    shift 2
    claim "$sentence: runs" run "$@"
    claim "$sentence" json "$expression"
}
# The same command without --json, into `text`.
text() { "$lockstep" "$@" >text 2>err || cat err; }
# An exit status, a word of stderr, a command: nothing on stdout.
refused() {
    local want=$1 word=$2
    shift 2
    claim "$*: $want" fails_with "$want" "$word" "$lockstep" "$@"
    claim "$*: nothing on stdout" test -z "$("$lockstep" "$@" 2>err)"
}

# --- every command that prints numbers has it ------------------------------------------------------------------------
without() {
    for c in $("$lockstep" --help | sed -nE 's/^  ([a-z]+) +[a-z].*/\1/p' | grep -v '^lockstep'); do
        "$lockstep" "$c" --help 2>/dev/null | grep -q -- '--json' || echo "$c"
    done
}
claim 'only commands that print no numbers lack --json' test "$(without | sort | tr '\n' ' ')" = 'completion export help import secret '

# --- doctor ------------------------------------------------------------------------------------------------------------
text doctor
is 'doctor: cores, pages and limits are those that Python finds' \
    'j["page_bytes"] == os.sysconf("SC_PAGE_SIZE") and j["cores_online"] == os.sysconf("SC_NPROCESSORS_ONLN")
     and all(j["limits"][k] == (lambda now: "unlimited" if now == resource.RLIM_INFINITY else now)(resource.getrlimit(which)[0]) for k, which in
         (("open_files", resource.RLIMIT_NOFILE), ("processes", resource.RLIMIT_NPROC), ("core_file_bytes", resource.RLIMIT_CORE),
          ("locked_memory_bytes", resource.RLIMIT_MEMLOCK), ("address_space_bytes", resource.RLIMIT_AS)))
     and 0 < j["memory_available_bytes"] <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")' doctor --json
claim 'doctor: usable cores as in the text' json '" %d usable " % j["cores_usable"] in text'
claim 'doctor: instructions as in the text' json 'all("%s %s" % (k, "yes" if v else "no") in text for k, v in j["instructions"].items())'
claim 'doctor: no peak, no launcher' json 'j["peak"] is None and j["launcher"] is None and "peak          not measured" in text'
claim 'doctor: caches as in the text' json 'all("%s %d KiB" % (k, v >> 10) in text for k, v in j["caches_bytes"].items())'
cat >peak.json <<'JSON'
{"lockstep_peak": 1, "host": "a\"b<", "peaks": [{"dtype": "float", "threads": 2, "gflops_per_thread": 12.25}]}
JSON
text doctor
claim 'doctor: the text shows the saved peak' grep -q 'f32 12\.2 GFLOP/s a thread with 2' text
is 'doctor: the same peak' 'j["peak"]["rates"] == [{"dtype": "f32", "threads": 2, "gflops_per_thread": 12.25}] and j["peak"]["host"] == "a\"b<"' \
    doctor --json
echo '{' >peak.json
is 'doctor: a broken file of peaks is said' '"peak.json" in j["peak"]["error"] and "rates" not in j["peak"]' doctor --json
rm peak.json
is 'doctor --peak: what it keeps' '[(r["threads"], r["gflops_per_thread"]) for r in j["rates"]]
    == [(r["threads"], r["gflops_per_thread"]) for r in json.load(open(j["file"]))["peaks"]]' doctor --peak --json
export RANK=3 WORLD_SIZE=4
is 'doctor: a launcher' 'j["launcher"]["rank"] == 3 and j["launcher"]["ranks"] == 4' doctor --json
unset WORLD_SIZE
is 'doctor: one with too few variables' 'j["launcher"]["rank"] == 3 and "WORLD_SIZE" in j["launcher"]["error"]' doctor --json
unset RANK
refused 64 "unexpected 'now'" doctor now --json

# --- calibrate -------------------------------------------------------------------------------------------------------
cat >'c"osts.json' <<'JSON'
{"lockstep_calibration": 1, "memory": {"alpha_ns": 750, "gap_ns": 250, "beta_ns_per_byte": 0.125}, "gamma_ns_per_byte": 0.5,
 "poke_ns": 1234, "in_memory": {"attach_bytes": 77}}
JSON
export LOCKSTEP_CALIBRATION=$tmp/'c"osts.json'
is 'calibrate --show: the numbers of the file' 'j["from"].endswith("c\"osts.json") and not j["measured"] and j["links"][0]
    == {"level": "memory", "alpha_us": 0.75, "gap_us": 0.25, "beta_ns_per_byte": 0.125, "gb_per_s": 8}
    and (j["add_ns_per_byte"], j["add_gb_per_s"], j["progress_us"]) == (0.5, 2, 1.234)
    and [p["bytes"] for p in j["in_memory"] if p["name"] in ("attach_bytes", "mail_string_bytes")] == [None, 77]' calibrate --show --json
text calibrate --show
claim 'calibrate --show: those of the text' json 'all(words[1 + i][:2] == [l["level"], "%.2f" % l["alpha_us"]] and words[1 + i][4] == "%.2f" % l["gb_per_s"]
    for i, l in enumerate(j["links"]))'
is 'calibrate: what it keeps, and each measurement' 'j["measured"] and (lambda kept: all(abs(l["alpha_us"] * 1e3 - kept[l["level"]]["alpha_ns"]) < 1e-6
    for l in j["links"]) and [p["bytes"] for p in j["in_memory"]] == [None if v >= 1e12 else v for v in kept["in_memory"].values()])
    (json.load(open("kept.json"))) and all(abs(f["fitted_us"] - l["alpha_us"] - f["bytes"] * l["beta_ns_per_byte"] / 1e3) < 1e-6
    for l in j["links"] if "fit" in l for f in l["fit"]) and len(j["links"][0]["fit"]) > 4 and "fit" not in j["links"][2]
    and abs(j["links"][0]["worst"] - max(abs(f["fitted_us"] / f["measured_us"] - 1) for f in j["links"][0]["fit"])) < 1e-6' \
    calibrate --json --output kept.json
echo '{' >'c"osts.json'
refused 65 'osts.json' calibrate --show --json
unset LOCKSTEP_CALIBRATION

# --- coll --------------------------------------------------------------------------------------------------------------
text coll --list
is 'coll --list: the names of the text' '[a["name"] for a in j["algorithms"]] == [w[0] for w in words]
    and all(", ".join(a["colls"]) in l and l.endswith(a["source"]) for a, l in zip(j["algorithms"], text.splitlines()))' coll --list --json
is 'coll: a schedule per rank' 'len(j) == 3 and [s["rank"] for s in j] == [0, 1, 2]' coll --algo ring -n 3 --json
cp out ring.json
is 'coll --file: proved' '(j["proved"], j["coll"], j["ranks"]) == (True, "all_reduce", 3)' coll --file ring.json --json
sed -i '0,/"first": 2/s//"first": 0/' ring.json # rank 0 sends another chunk than rank 1 awaits
refused 65 'not proved' coll --file ring.json --json

# --- pipeline ----------------------------------------------------------------------------------------------------------
text pipeline --list
is 'pipeline --list: the names of the text' '[s["name"] for s in j["schedules"]] == [w[0] for w in words[1:]]
    and all(s["summary"] in l for s, l in zip(j["schedules"], text.splitlines()[1:]))' pipeline --list --json
is 'pipeline: the bubble in closed form' 'abs(j["bubble"] - 3 / 11) < 1e-12 and j["step_ms"] == 33 and j["proved"] is True
    and [r["alive"] for r in j["rank"]] == [4, 3, 2, 1]' pipeline -p 4 -m 8 --json
is 'pipeline: phases add up' 'all(abs(r["warm_up_ms"] + r["steady_ms"] + r["cool_down_ms"] + r["idle_ms"] - j["step_ms"]) < 1e-9
    for r in j["rank"])' pipeline --schedule zb-v --transfer 0.1 --json
"$lockstep" pipeline --schedule dualpipe-v -p 3 -m 7 --csv >text
is 'pipeline: the actions of the CSV' '[[a["action"] for a in r["actions"]] for r in j["rank"]] == [l.split(",") for l in text.splitlines()]' \
    pipeline --schedule dualpipe-v -p 3 -m 7 --json
is 'pipeline --file: the same' '(j["ranks"], j["chunks"], j["micro_batches"], j["placement"], j["schedule"]) == (3, 2, 7, "v", "text")' \
    pipeline --file text --json
text pipeline --compare
is 'pipeline --compare: the numbers of the text' 'all(w[0] == s["name"] and float(w[2]) == s["step_ms"] and w[3] == "%.1f" % (100 * s["bubble"])
    for s, w in zip(j["schedules"], words[2:]))' pipeline --compare --json
echo '0F0,0B1' >"a \"file"
refused 65 'not proved' pipeline --file 'a "file' --json

# --- bench -------------------------------------------------------------------------------------------------------------
few=(-b 48K -e 96K -n 2 -w 0)
is 'bench: bus bandwidth is 2 (n-1)/n of that of the algorithm, which is bytes over time' '[r["size"] for r in j["results"]] == [49152, 98304]
    and all(abs(x["bus_bw"] - 4 / 3 * x["alg_bw"]) < 1e-9 * x["bus_bw"] and abs(x["alg_bw"] - 1e-3 * r["size"] / x["time"]) < 1e-9 * x["alg_bw"]
    and x["nwrong"] == 0 for r in j["results"] for x in (r["out_of_place"], r["in_place"])) and j["config"]["ranks"] == 3' \
    bench all_reduce -g 3 "${few[@]}" --json
is 'bench --count: 2 (n-1)/n of the bytes of a ring' 'all(r["in_place_count"]["measured"] == r["in_place_count"]["formula"] == [r["size"] * 4 // 3] * 3
    for r in j["results"])' bench all_reduce -g 3 "${few[@]}" --transport tcp --algo ring --count --place in --json
is 'bench -J: the same object in the file' 'j == json.load(open("rows.json"))' bench all_gather -g 2 "${few[@]}" --threads --json -J rows.json
is 'bench --fit' 'j["fit"][0]["rows"] == 2 and j["fit"][0]["algorithm"] == "ring"' bench all_reduce -g 2 "${few[@]}" --transport tcp --algo ring --fit --json
refused 64 '--csv and --json: expected one of them' bench all_reduce --csv --json
refused 64 '--report_timestamps belongs to the table, here is --json' bench all_reduce -S 1 --json
refused 64 "no transport named 'tpc'" bench all_reduce --transport tpc --json
text bench all_reduce --explain -g 4 -b 1K -e 4K --transport tcp
is 'bench --explain: the times of the text' '[s["bytes"] for s in j["sizes"]] == [1024, 2048, 4096] and j["nodes"][0]["ranks"] == 4
    and all("%s %d segment" % (a["name"], a["segments"]) in " ".join(text.split()) and "%.2f us" % a["predicted_us"] in text
    for s in j["sizes"] for a in s["algorithms"][:6]) and all([a["chosen"] for a in s["algorithms"]] == [True] + [False] * (len(s["algorithms"]) - 1) for s in j["sizes"])' \
    bench all_reduce --explain -g 4 -b 1K -e 4K --transport tcp --json
text bench all_reduce --explain -b 1M -e 1M
is 'bench --explain: the forms of the text' 'len(j["sizes"][0]["forms"]) == len(words) - 4 == 2 and all(w[:8] == [str(f[k]) for k in ("name", "rank",
    "rounds", "flags", "read_bytes", "written_bytes", "added_bytes", "copied_bytes")] for w, f in zip(words[4:], j["sizes"][0]["forms"]))' \
    bench all_reduce --explain -b 1M -e 1M --json

# --- data --------------------------------------------------------------------------------------------------------------
odd=$'o"d\\d\n\377<'
mkdir "$odd"
printf 'one "line"\nand another\n' >"$odd/t.txt"
is 'data prepare: tokens are bytes and an end of text' 'j["files"] == [{"name": "train.bin", "tokens": 24, "documents": 1, "text_bytes": 23}]
    and j["vocabulary"] == 257 and abs(j["tokens_per_s"] * j["seconds"] - 24) < 1e-6 and j["out"] == "o\"d\\d\n\ufffd</p"' \
    data prepare "$odd/t.txt" --tokenizer byte --val 0 --out "$odd/p" --json
claim 'data prepare: in the file' test "$(stat -c %s "$odd/p/train.bin")" = $((1024 + 2 * 24))
text data prepare "$odd/t.txt" --tokenizer byte --val 0 --out again
claim 'data prepare: as in the text' json '"again/train.bin  %d tokens, 1 document, 0.00 MB of text" % j["files"][0]["tokens"] in text'
is 'data show: the text' '"".join(t["text"] for t in j["first"][1:]) == "one \"line\"\nand another\n" and j["tokens"] == 24 and j["bits"] == 16
    and j["end_of_text"] == {"id": 256, "times": 1} and j["max_id"] == 256' data show "$odd/p/train.bin" --json
is 'data show: an object per file' '[l["tokens"] for l in lines] == [24, 24] and [len(l["first"]) for l in lines] == [1, 1]' \
    data show "$odd/p/train.bin" again/train.bin --json -n 1
rm again/tokenizer.json
is 'data show: without a tokenizer' 'j["end_of_text"] is None and j["first"][1] == {"id": 111, "text": None}' data show again/train.bin --json
printf 'a\0b\n' >nul.txt
claim 'data prepare: a text with NUL' run data prepare nul.txt --tokenizer byte --val 0 --out nul
is 'data show: NUL' '[t["text"] for t in j["first"]][1:] == ["a", "\0", "b", "\n"]' data show nul/train.bin --json
refused 74 'absent' data show absent --json
text data fetch --list
is 'data fetch --list: the sets of the text' '[s["name"] for s in j["data_sets"]] == [w[0] for w in words[::2]]' data fetch --list --json
refused 64 'no data set is named' data fetch absent --json

# --- ckpt, generate ------------------------------------------------------------------------------------------------------
cat >gpt.yaml <<'YAML'
model: { name: gpt2, n_layer: 1, n_head: 2, d_model: 8, seq_len: 16 }
data: { path: nul }
train: { steps: 2, global_batch: 2, seed: 5 }
checkpoint: { every: 1 }
log: { tensorboard: false }
YAML
for ((i = 0; i < 40; i++)); do echo "A rank waits for $((i * 7919 % 97)) others."; done >long.txt
"$lockstep" data prepare long.txt --tokenizer byte --val 0.1 --out nul --force >out || cat out
"$lockstep" train gpt.yaml -n 2 --run.dir "$odd/r" >trained 2>&1 || cat trained
"$lockstep" train gpt.yaml -n 2 --run.dir other --train.seed 6 >out 2>&1 || cat out
one="$odd/r/checkpoints/step-00000001" two="$odd/r/checkpoints/step-00000002"
is 'ckpt verify: each checkpoint' '[(l["ok"], l["compared"], l["step"]) for l in lines] == [(True, True, 1), (True, True, 2)]
    and lines[0]["path"].startswith("o\"d\\d\n\ufffd<")' ckpt verify "$odd/r" --json
is 'ckpt verify: one file' '(j["files"], j["step"], j["compared"]) == (1, None, True)' ckpt verify "$two/model.safetensors" --json
is 'ckpt digest: that of the last line' 'j["digest"] in open("trained", errors="replace").read().splitlines()[-1]' ckpt digest "$two" --json
text ckpt diff "$one" "$two"
"$lockstep" ckpt diff "$one" "$two" --json >out
claim 'ckpt diff: 1 if they differ' test $? = 1
claim 'ckpt diff: the differences of the text' json 'not j["same"] and len(j["differ"]) == len(words) and all(d["tensor"] + ": " +
    "%d of %d elements differ, the first at %s: %.9g and %.9g; at most %.3g apart" % (d["differing"], d["elements"], d["first"], d["a"], d["b"], d["most_apart"])
    in text for d in j["differ"])'
is 'ckpt diff: of itself' 'j["same"] and j["differ"] == [] and j["tensors"] > 10' ckpt diff "$one" "$one" --json
python3 - <<'PY'
import json, struct
def write(path, tensors):
    header, data = {}, b""
    for name, shape, values in tensors:
        raw = struct.pack("<%df" % len(values), *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(head)) + head + data)
write("a.safetensors", [("x", [2], [1, 2]), ('"y', [2, 2], [1, 2, 3, 4]), ("z", [1], [0.5])])
write("b.safetensors", [("x", [2, 1], [1, 2]), ('"y', [2, 2], [1, 2, 5, float("inf")]), ("w", [1], [0.5])])
PY
"$lockstep" ckpt diff a.safetensors b.safetensors --json >out
claim 'ckpt diff: values, shapes, and what one lacks' json 'not j["same"] and j["tensors"] == 3
    and {d["tensor"]: d["why"] for d in j["differ"]} == {"x": "shape or type", "\"y": "values", "z": "not in b", "w": "not in a"}
    and [(d["elements"], d["differing"], d["first"], d["a"], d["b"], d["most_apart"]) for d in j["differ"] if d["why"] == "values"] == [(4, 2, [1, 0], 3, 5, None)]'
"$lockstep" ckpt diff "$odd/r" other --json >out
claim 'ckpt diff: of two runs, the first step that differs' json '[(s["step"], s["same"]) for s in j["steps"]] == [("step-00000001", False)] and not j["same"]'
is 'ckpt diff: of two runs, all steps' '[s["same"] for s in j["steps"]] == [True, True] and j["same"]' ckpt diff other other --json
is 'ckpt show' 'j["parameters"] * 4 == j["model_bytes"] and j["step"] == 1' ckpt show "$one" --json
is 'ckpt merge' '(j["step"], j["ranks"], j["out"]) == (1, 1, "merged")' ckpt merge "$one" --out merged --json
is 'ckpt reshard' '(j["step"], j["ranks"], j["out"]) == (1, 3, "three")' ckpt reshard "$one" three --ranks 3 --json
is 'ckpt ls: sizes are those of the shapes' 'all(t["bytes"] == 4 * __import__("math").prod(t["shape"]) for t in j["tensors"] if t["dtype"] == "F32")' \
    ckpt ls three --json
refused 74 'absent' ckpt digest absent --json
head -c 200 "$two/model.safetensors" >cut.safetensors
refused 65 'cut short' ckpt verify cut.safetensors --json
refused 64 '--out belongs to merge' ckpt ls "$one" --out x --json
"$lockstep" generate "$two" --prompt 'A "rank' --tokens 9 --seed 4 >text 2>said
is 'generate: the text and the tokens' 'j["text"] + "\n" == text and (j["tokens"], j["prompt_tokens"], j["context"]) == (9, 7, 16)
    and abs(j["tokens_per_s"] * j["seconds"] - 8) < 1e-6 and not j["stopped"]' generate "$two" --prompt 'A "rank' --tokens 9 --seed 4 --json
claim 'generate: the parameters that the text has' grep -q "with $(python3 -c 'import json; print(json.load(open("out"))["parameters"])') parameters" said
claim 'generate: nothing on stderr' test ! -s err
refused 74 'absent' generate absent --json

# --- figure: more in test_figure.sh ----------------------------------------------------------------------------------------
is 'figure' 'j["figure"] == "sampler"' figure sampler --json
refused 64 'no figure' figure absent --json
finish
