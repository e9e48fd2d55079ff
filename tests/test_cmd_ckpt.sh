#!/bin/bash
# lockstep ckpt and lockstep doctor from outside: output, exit codes, hostile names.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
ckpt() { "$build/lockstep" ckpt "$@"; }

mkdir -p run/checkpoints/step-1 run/checkpoints/step-2 empty
for step in 1 2; do
    "$build"/examples/train_single --epochs $step --d-in 8 --d-hidden 16 --d-out 4 \
        --out run/checkpoints/step-$step/model.safetensors >/dev/null || exit 1
done
a=run/checkpoints/step-1/model.safetensors b=run/checkpoints/step-2/model.safetensors

# --- ls
claim 'ls shows names, types, sizes and shapes' has_line '0.weight F32              512 bytes' ckpt ls $a
claim 'ls shows metadata' has_line '# format: pt' ckpt ls $a
claim 'ls finds the files of a run folder' test "$(ckpt ls run | grep -c '4 tensors, 848 bytes, a digest for each')" = 2
claim 'ls --json is JSON, a line a file' test "$(ckpt ls --json run | wc -l)" = 2
if python3 -c 'import json' 2>/dev/null; then
    claim 'with the same facts' has_line '[4, 16] 256' sh -c "'$build/lockstep' ckpt ls --json $a | python3 -c '
import json, sys
t = json.load(sys.stdin)[\"tensors\"][2]
print(t[\"shape\"], t[\"bytes\"])'"
fi

# --- verify
claim 'verify is silent about nothing' has_line "ok  $a  4 tensors, every byte as it was saved" ckpt verify $a
claim 'verify goes through a folder' test "$(ckpt verify run | grep -c '^ok  ')" = 2
ln -s run link
claim 'a folder named by the user may be a link' test "$(ckpt verify link | grep -c '^ok  ')" = 2
ln -s ../$a run/link.safetensors
claim 'links inside a folder are not followed' test "$(ckpt verify run | grep -c '^ok  ')" = 2
claim 'a link named by the user is refused' fails_with 77 'unsafe-path' ckpt verify run/link.safetensors
touch run/.model.safetensors.0123456789abcdef.tmp
claim 'an unfinished save is not looked at' ckpt verify run

cp $a damaged.safetensors
printf '\x55' | dd of=damaged.safetensors bs=1 seek=$(($(stat -c %s $a) - 1)) conv=notrunc status=none
claim 'a changed byte: 65, with file and tensor' fails_with 65 "error[ckpt-corrupt]: damaged.safetensors: tensor '2.bias'" \
    ckpt verify damaged.safetensors
cp $a cut.safetensors
truncate -s -1 cut.safetensors
claim 'a cut file: 65, and why' fails_with 65 'cut short' ckpt verify cut.safetensors
mkdir mixed
cp damaged.safetensors $a mixed
claim 'one bad file of two: 65' fails_with 65 'mixed/damaged.safetensors' ckpt verify mixed
claim 'the good one is said to be good' test "$(ckpt verify mixed 2>/dev/null)" = \
    'ok  mixed/model.safetensors  4 tensors, every byte as it was saved'
printf '\x80\x02}q\x00.' >pickle.pt
claim 'a pickle: 65, by name' fails_with 65 'this is a pickle' ckpt verify pickle.pt
claim 'an empty folder: 65' fails_with 65 'no *.safetensors file' ckpt verify empty
claim 'a file that is not there: 74' fails_with 74 'No such file' ckpt verify absent

# A file by another program: no digests, a name and metadata that would steer a terminal.
printf '%b' '\x73\0\0\0\0\0\0\0{"__metadata__":{"note":"a\\u001b[2Jb\\u202ec"},"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}' >foreign.safetensors
size=$(($(stat -c %s foreign.safetensors) - 8))
printf "\\x$(printf %x $size)" | dd of=foreign.safetensors bs=1 conv=notrunc status=none
printf 'abc' >>foreign.safetensors
claim 'a file without digests is said to have none' has_line 'no digests to check' ckpt verify foreign.safetensors
claim 'control characters are shown, not sent' has_line '# note: a\x1b[2Jb\xe2\x80\xaec' ckpt ls foreign.safetensors

# --- a checkpoint of all ranks
state=folder/checkpoints/step-00000006
"$build/lockstep" train exercise-mlp -n 2 --zero.stage 2 --train.steps 6 --checkpoint.every 3 --run.dir folder --run.name f >trained 2>&1
claim 'ls: each tensor as a whole, and where it is' has_line '  0.weight                  F32            32768 bytes in 2 files  [128, 64]' ckpt ls $state
claim 'ls: with the state of the optimizer' has_line '  optim.exp_avg_sq.2.bias   F32               40 bytes in 2 files  [10]' ckpt ls $state
claim 'ls --json' test "$(ckpt ls $state --json | python3 -c 'import json,sys; d=json.load(sys.stdin); print(d["step"], d["world_size"], d["files"], len(d["tensors"]))')" = '6 2 2 29'
claim 'show: step and ranks' has_line "$state: step 6, saved by 2 ranks, generation 1" ckpt show $state
claim 'show: the state' has_line 'position 192, samples 1000, scale 1, seed 0, skipped 0, step 6' ckpt show $state
claim 'show: files' has_line '  files      2 of ranks, config.yaml, model.safetensors' ckpt show $state
claim 'show --json' test "$(ckpt show $state --json | python3 -c 'import json,sys; d=json.load(sys.stdin); print(d["step"], d["parameters"], d["optimizer_bytes"], d["state"]["position"])')" = '6 9610 76920 192'
claim 'verify: of a run, all' test "$(ckpt verify folder | cut -d' ' -f 3-6)" = $'folder/checkpoints/step-00000003  step 3,\nfolder/checkpoints/step-00000006  step 6,'
claim 'digest: that of the last line' test "$(ckpt digest $state)" = "$(sed -n '$s/.*digest=//p' trained)  $state"
claim 'digest: of one file' test "$(ckpt digest $state/model.safetensors | cut -d' ' -f1)" = "$(sed -n '$s/.*digest=//p' trained)"
claim 'diff: of itself' test "$(ckpt diff $state $state)" = 'the same 29 tensors, to the bit'
claim 'diff: of another step: 1' fails_with 1 '' ckpt diff folder/checkpoints/step-00000003 $state
ckpt diff folder/checkpoints/step-00000003 $state >differ
claim 'diff: each tensor that differs' test "$(grep -c 'elements differ, the first at \[0' differ)" = 20 # not seed, samples, data, clean, scale and skipped
claim 'diff: numbers' grep -qx 'state.step: 1 of 1 elements differ, the first at \[0\]: 3 and 6; at most 3 apart' differ
cp -r $state changed
python3 - changed/model.safetensors <<'PY'
import sys
f = open(sys.argv[1], 'r+b')
f.seek(-4, 2)
f.write(b'\0\0\x80\x3f') # 1.0, the last element of the last tensor
PY
claim 'verify: a byte of another file than the ranks have: 65' fails_with 65 'changed/model.safetensors: bytes' ckpt verify changed
rm changed/model.safetensors
claim 'verify: one that is gone: 65' fails_with 65 'changed/model.safetensors: is missing, and the manifest names it' ckpt verify changed
claim 'diff: a tensor that one has not' fails_with 1 '' ckpt diff $state/model.safetensors $state
ckpt diff $state $state/model.safetensors >differ
claim 'diff: each of them' test "$(grep -c ": not in $state/model.safetensors" differ)" = 25
claim 'merge' has_line 'merged: the model of folder/checkpoints/step-00000003, step 3' ckpt merge folder/checkpoints/step-00000003 --out merged
claim 'merge: the same model' test "$(ckpt digest merged/model.safetensors | cut -d' ' -f1)" = "$(ckpt digest folder/checkpoints/step-00000003 | cut -d' ' -f1)"
claim 'merge: into a folder that is there' fails_with 74 'cannot take its name' ckpt merge $state --out merged
claim 'merge: which stays' test "$(ls -A merged)" = $'config.yaml\nmodel.safetensors'
claim 'merge: nothing temporary is left' test -z "$(ls -A | grep merged.*tmp)"
claim 'merge: without --out: 64' fails_with 64 'and --out FOLDER' ckpt merge $state
claim 'diff: of one: 64' fails_with 64 'expected two checkpoints' ckpt diff $state
claim 'another verb with --out: 64' fails_with 64 '--out belongs to merge' ckpt ls $state --out x
claim 'show: of a file: 65' fails_with 65 'has no manifest.json' ckpt show merged

# --- reshard: of a checkpoint that 3 ranks have saved
cat >three.yaml <<YAML
model: { name: mlp, dims: [64, 13, 10] }
data: { name: synthetic }
train: { steps: 5, global_batch: 24 }
optim: { name: adamw, lr: 0.01 }
YAML
three() { timeout -k 5 60 "$build/lockstep" train three.yaml "$@" 2>/dev/null | tail -1; }
three -n 3 --zero.stage 3 --train.steps 3 --run.dir three >/dev/null
of=three/checkpoints/step-00000003
files() { (cd "$1" && ls -A . sharded); }
boxes() {
    python3 -c '
import json, os, sys
for file in sorted(os.listdir(sys.argv[1])):
    with open(sys.argv[1] + file, "rb") as f: h = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    meta = h.pop("__metadata__")
    info = json.loads(meta["DCP_SHARDING_INFO"])
    print(file, sorted((k, t["dtype"], t["shape"], info[k]["saved_offsets"]) for k, t in h.items()))
    print(sorted((k, v) for k, v in meta.items() if k != "DCP_SHARDING_INFO" and not k.startswith(("lockstep.save", "lockstep.xxh3", "lockstep.header"))))
' "$1/sharded/"
}
for ranks in 1 2 4 8 13 20; do
    claim "reshard to $ranks" test "$(ckpt reshard $of as$ranks --ranks $ranks)" = "as$ranks: step 3 of $of, as $ranks rank$([ $ranks = 1 ] || echo s) would have saved it"
    claim "to $ranks: the same tensors" test "$(ckpt diff $of as$ranks)" = 'the same 29 tensors, to the bit'
    claim "to $ranks: every byte" ckpt verify as$ranks
    claim "to $ranks: step, ranks, generation" has_line "as$ranks: step 3, saved by $ranks rank$([ $ranks = 1 ] || echo s), generation 1" ckpt show as$ranks
    claim "to $ranks: the same values of the run" test "$(ckpt show as$ranks | grep '  state')" = "$(ckpt show $of | grep '  state')"
    claim "to $ranks: the files beside it" cmp as$ranks/config.yaml $of/config.yaml
    claim "to $ranks: the whole model" cmp as$ranks/model.safetensors $of/model.safetensors
done
for ranks in 1 2 4; do # a run of so many ranks has saved the same files: not the same values, but the same boxes of them
    three -n $ranks --zero.stage 1 --train.steps 3 --run.dir of$ranks >/dev/null
    claim "to $ranks: the files of so many ranks" diff <(files as$ranks) <(files of$ranks/checkpoints/step-00000003)
    claim "to $ranks: with the same boxes" test -n "$(boxes as$ranks)" -a "$(boxes as$ranks)" = "$(boxes of$ranks/checkpoints/step-00000003)"
done
claim 'of 20 ranks some have nothing' test "$(ls as20/sharded | wc -l)" = 13
want=$(three -n 2 --checkpoint.resume $of --run.dir on-3)
for ranks in 1 2 4 8; do claim "a run goes on from $ranks as from 3" test -n "$want" -a "$(three -n 2 --checkpoint.resume as$ranks --run.dir on$ranks)" = "$want"; done
claim 'and back: the same files' test "$(ckpt reshard as8 back --ranks 3 >/dev/null && ckpt diff back $of)" = 'the same 29 tensors, to the bit'
claim 'reshard: a folder that is there' fails_with 74 'as2: is there already' ckpt reshard $of as2 --ranks 2
mkdir there
claim 'reshard: and be it empty' fails_with 74 'there: is there already' ckpt reshard $of there --ranks 2
cp -r as2 bad
printf '\x55' | dd of=bad/sharded/shard-00002-model-00001-of-00001.safetensors bs=1 seek=$(($(stat -c %s bad/sharded/shard-00002-*) - 1)) conv=notrunc status=none
claim 'reshard: damaged: 65' fails_with 65 'bad/sharded/shard-00002-model-00001-of-00001.safetensors: bytes' ckpt reshard bad from-bad --ranks 2
rm bad/sharded/shard-00002-*
claim 'reshard: a file is missing: 65' fails_with 65 'is missing, and the manifest names it' ckpt reshard bad from-bad --ranks 2
rm -r bad && cp -r as2 bad # of a file that is copied whole
printf '\x55' | dd of=bad/model.safetensors bs=1 seek=$(($(stat -c %s bad/model.safetensors) - 1)) conv=notrunc status=none
claim 'reshard: the whole model is damaged: 65' fails_with 65 'bad/model.safetensors: bytes' ckpt reshard bad from-bad --ranks 2
claim 'reshard: nothing is left of it' test -z "$(ls -Ad from-bad .from-bad* 2>/dev/null)"
claim 'reshard: without --ranks: 64' fails_with 64 'and --ranks N' ckpt reshard $of new
claim 'reshard: without a folder: 64' fails_with 64 'a new folder' ckpt reshard $of --ranks 2
claim 'reshard: more ranks than there can be: 64' fails_with 64 '65536' ckpt reshard $of new --ranks 65537
claim 'another verb with --ranks: 64' fails_with 64 '--ranks belongs to reshard' ckpt ls $of --ranks 2
claim 'reshard: of one file: 65' fails_with 65 '' ckpt reshard $of/model.safetensors new --ranks 2

# --- usage
claim 'no arguments: 64' fails_with 64 'expected ls, show, verify, diff, merge, reshard or digest' ckpt
claim 'a verb that is not there: 64, with the nearest' fails_with 64 "did you mean 'verify'" ckpt verfy x
claim 'help shows an example' has_line 'example:' ckpt --help

# --- doctor
for line in lockstep products threads transports system processor cores caches NUMA memory 'shared memory' 'peer memory' limits peak launcher data; do
    claim "doctor has a line on $line" has_line "$line" "$build/lockstep" doctor
done
claim 'doctor says which rank it is' has_line 'this is rank 3 of 4' env RANK=3 WORLD_SIZE=4 "$build/lockstep" doctor
claim 'doctor takes no arguments: 64' fails_with 64 "unexpected 'now'" "$build/lockstep" doctor now
export LOCKSTEP_PEAK=$tmp/cache/peak.json
claim 'doctor --peak measures, and keeps it' has_line "kept in $LOCKSTEP_PEAK" "$build/lockstep" doctor --peak
claim 'a row for each type and number of threads' grep -qE '"dtype": "float", "threads": 1, "gflops_per_thread": [0-9]' "$LOCKSTEP_PEAK"
claim 'doctor shows what is kept' has_line 'GFLOP/s a thread with 1' "$build/lockstep" doctor
finish
