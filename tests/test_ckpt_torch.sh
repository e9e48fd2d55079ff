#!/bin/bash
# test_ckpt_torch.sh -- files in the form in which PyTorch's DCP saves a model and its AdamW: names, offsets, numbers of updates
# in F32. They are made of a checkpoint of Lockstep's, and a run goes on from them as from that. tests/long_dcp_fsdp2.sh has
# PyTorch itself.
#
#   tests/test_ckpt_torch.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
if ! python3 -c 'import json' 2>/dev/null; then echo 'skipped: no python3'; finish; fi
cat >mlp.yaml <<YAML
model: { name: mlp, dims: [64, 13, 10] }
data: { name: synthetic }
train: { steps: 5, global_batch: 24 }
optim: { name: adamw, lr: 0.01 }
YAML
train() { timeout -k 5 60 "$lockstep" train mlp.yaml "$@" >out 2>err; }
final() { tail -1 out; }
train -n 2 --zero.stage 2 --run.dir whole
train -n 2 --zero.stage 2 --train.steps 3 --run.dir saved
saved=saved/checkpoints/step-00000003

cat >torch.py <<'PY'
"""torch.py FROM TO [FORM...]: the files of FROM/sharded as PyTorch's DCP writes them, in TO."""
import json, os, re, struct, sys
source, to, forms = sys.argv[1] + '/sharded/', sys.argv[2] + '/', sys.argv[3:]
os.makedirs(to)

def name_of(name):
    m = re.fullmatch(r'optim\.(exp_avg|exp_avg_sq|step)\.(.*)', name)
    if 'plain' in forms: return f'state.{m[2]}.{m[1]}' if m else name
    return f'optim.state.{m[2]}.{m[1]}' if m else 'model.' + name

def write(file, tensors):
    info = {k: {'saved_offsets': offsets} for k, (dtype, shape, offsets, data) in tensors.items()}
    header, at = {'__metadata__': {'DCP_SHARDING_INFO': json.dumps(info), 'DCP_VERSION': '1.0', 'format': 'pt'}}, 0
    for k, (dtype, shape, offsets, data) in tensors.items():
        header[k] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(to + file, 'wb') as f:
        f.write(struct.pack('<Q', len(text)) + text + b''.join(t[3] for t in tensors.values()))

for file in sorted(os.listdir(source)):
    with open(source + file, 'rb') as f: all = f.read()
    n = 8 + struct.unpack('<Q', all[:8])[0]
    header = json.loads(all[8:n])
    info = json.loads(header.pop('__metadata__')['DCP_SHARDING_INFO'])
    tensors = {}
    for k, t in header.items():
        data = all[n + t['data_offsets'][0]:n + t['data_offsets'][1]]
        if k.startswith('state.') or k == 'optim.steps': continue
        if k.startswith('optim.step.'):
            count = struct.unpack('<q', data)[0] + (0.5 if 'half' in forms else 0)
            tensors[name_of(k)] = ('F32', [], [], struct.pack('<f', count))
        else:
            tensors[name_of(k)] = (t['dtype'], t['shape'], info[k]['saved_offsets'], data)
        if k == '2.weight' and ('tied' in forms or 'other' in forms):
            tensors['model.head.weight'] = (t['dtype'], t['shape'], info[k]['saved_offsets'],
                                            data if 'tied' in forms else data[:-1] + b'?')
    if 'lr' in forms and '00001-model' in file[:14]:
        tensors['optim.param_groups.0.weight.lr'] = ('F32', [], [], struct.pack('<f', 0.01))
    write(file, tensors)
PY
for form in keys plain tied lr; do
    python3 torch.py $saved $form $form
    claim "$form: its values are those of the checkpoint" fails_with 1 '' "$lockstep" ckpt diff $form $saved
    "$lockstep" ckpt diff $form $saved >differ
    claim "$form: and its moments" test -z "$(grep -vE '^(state|optim.step)|^optim.steps: not in|^(head.weight|optim.param_groups.*): not in' differ)"
    for ranks in 2 3; do
        train -n $ranks --zero.stage 2 --checkpoint.resume $saved --run.dir ours-$form-$ranks
        want=$(final)
        train -n $ranks --zero.stage 2 --checkpoint.resume $form --run.dir go-$form-$ranks
        claim "$form: $ranks ranks go on as from the checkpoint" test -n "$want" -a "$(final)" = "$want"
    done
    claim "$form: after the same step" grep -q "^resuming $form, saved by another program: the optimizer's state is of step 3, " out
done
train -n 2 --zero.stage 2 --checkpoint.resume keys --run.dir go
claim 'which is the uninterrupted end' test "$(final)" = "$(train -n 2 --zero.stage 2 --run.dir whole2; final)"
mkdir in && mv keys in/sharded
claim 'files in sharded/' train -n 2 --checkpoint.resume in --run.dir go-in
claim 'ls: with the names of Lockstep' has_line 'optim.exp_avg_sq.2.bias ' "$lockstep" ckpt ls in
claim 'ls: without checksums' has_line ', no checksums' "$lockstep" ckpt ls in
claim 'show' has_line 'in: saved by another program' "$lockstep" ckpt show in
claim 'verify: there is nothing to compare with' has_line 'files of another program, well-formed; there are no checksums' "$lockstep" ckpt verify in
claim 'digest' test "$("$lockstep" ckpt digest in | cut -d' ' -f1)" = "$("$lockstep" ckpt digest $saved | cut -d' ' -f1)"
claim 'merge' test "$("$lockstep" ckpt merge in --out merged)" = 'merged: the model of in'
claim 'merge: the same model' test "$("$lockstep" ckpt digest merged/model.safetensors | cut -d' ' -f1)" = "$("$lockstep" ckpt digest $saved | cut -d' ' -f1)"
claim 'nothing left to do: what was loaded is saved' train --train.steps 3 --checkpoint.resume in --run.dir same
claim 'with the same values, moments and numbers of updates' test "$("$lockstep" ckpt diff same/checkpoints/step-00000003 $saved | grep -v '^state.')" = ''

refused() { # text, options...
    local text=$1
    shift
    fails_with 65 "$text" "$lockstep" train mlp.yaml --run.dir no "$@"
}
python3 torch.py $saved other other
claim 'a tensor with other values than any of the model' refused "has a tensor 'head.weight', which the model does not know" --checkpoint.resume other
python3 torch.py $saved half half
claim 'half an update' refused "is 3.5, expected a number of updates" --checkpoint.resume half
claim 'another optimizer' refused 'it was saved with another optimizer' --checkpoint.resume in --optim.name sgd
claim 'more steps than the run has' fails_with 78 'is of step 3, and the run has 2 steps' "$lockstep" train mlp.yaml --run.dir no --train.steps 2 --checkpoint.resume in
cp -r in first && rm first/sharded/shard-00001-*
claim "a rank's file is missing" refused "a rank's file is missing" --checkpoint.resume first
rm in/sharded/shard-00002-*
claim 'the last file is missing: the tensor looks smaller' refused "has shape [7, 64], the program's has [13, 64]" --checkpoint.resume in
printf '\x80\x02}q\x00.' >model.pt
claim 'a pickle' refused 'model.pt: this is a pickle' --checkpoint.resume model.pt
rm $saved/manifest.json
claim 'a checkpoint of ours without its manifest is not whole' fails_with 65 'has no manifest.json, which Lockstep writes last' "$lockstep" ckpt verify $saved
claim 'nothing was begun' test ! -e no
finish
