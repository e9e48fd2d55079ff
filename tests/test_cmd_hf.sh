#!/bin/bash
# lockstep import and export from outside: a folder that transformers saved, there and back; what is refused.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
golden=$source_dir/tests/golden/hf
lockstep() { "$build/lockstep" "$@"; }

for model in gpt2 llama; do
    claim "import: $model as transformers saved it" lockstep import "$golden/$model" --out $model.safetensors
    claim 'what comes out is a whole checkpoint' lockstep ckpt verify $model.safetensors
    claim 'that knows its model' has_line "# lockstep.model: $model" lockstep ckpt ls $model.safetensors
    claim 'export' lockstep export $model.safetensors --out $model
    claim 'one file and its config' test "$(echo $(ls $model))" = 'config.json generation_config.json model.safetensors'
    claim 'import of the export' lockstep import $model --out again-$model.safetensors
    claim 'is the same to the byte' cmp $model.safetensors again-$model.safetensors
done
claim 'import over the same' lockstep import gpt2 --out again-gpt2.safetensors
claim 'import over another: 64' fails_with 64 'again-llama.safetensors: is there already, and is not what gpt2 becomes: name another file, or give --force' \
    lockstep import gpt2 --out again-llama.safetensors
claim 'which stays, alone' test "$(cmp llama.safetensors again-llama.safetensors && ls again-llama* | wc -l)" = 1
names() { ls -A | grep tmp | grep -vE '^\.again-llama\.safetensors\.[0-9a-f]{16}\.tmp$'; }
claim 'import over another leaves nothing' test -z "$(ls -A | grep tmp)"
(ulimit -c 0; ulimit -f 1; lockstep import gpt2 --out again-llama.safetensors) >/dev/null 2>&1 # killed, or refused, as it writes
claim 'import over another, cut off: no temporary names but those of commit.h' test -z "$(names)"
rm -rf .again-llama.*
claim 'import --force replaces it' lockstep import gpt2 --out again-llama.safetensors --force
claim 'by the right one' cmp gpt2.safetensors again-llama.safetensors

claim 'export in shards' lockstep export llama.safetensors --out shards --dtype bf16 --max-shard-size 10KiB
claim 'as many as it takes' test "$(echo $(ls shards | wc -l))" -gt 4
claim 'in the type asked for' has_line '"torch_dtype": "bfloat16"' cat shards/config.json
claim 'import of shards' lockstep import shards --out narrow.safetensors
claim 'bf16 there and back is bf16' lockstep export narrow.safetensors --out twice --dtype bf16 --max-shard-size 10KiB
claim 'to the byte' diff -r shards twice

mkdir -p run/checkpoints/step-00000009 run/checkpoints/step-00000010 run/checkpoints/step-00000002
cp gpt2.safetensors run/checkpoints/step-00000010/model.safetensors
cp llama.safetensors run/checkpoints/step-00000009/model.safetensors
cp llama.safetensors run/checkpoints/step-00000002/model.safetensors
claim 'a run folder: its newest checkpoint' has_line 'from run/checkpoints/step-00000010/model.safetensors' \
    lockstep export run --out newest
claim 'which is the one' diff -r gpt2 newest
claim 'a checkpoint folder' lockstep export run/checkpoints/step-00000009 --out older
claim 'is that one' diff -r llama older

claim 'export into a folder with something in it: 64' fails_with 64 'is not an empty folder' lockstep export gpt2.safetensors --out gpt2
claim 'export of nothing: 65' fails_with 65 'neither model.safetensors nor' lockstep export gpt2/.. --out none
claim 'export of an absent file: 74' fails_with 74 'No such file' lockstep export absent --out none
claim 'export without --out: 64' fails_with 64 'and --out DIR' lockstep export gpt2.safetensors
claim 'an unknown type: 64' fails_with 64 'f32|bf16|f16' lockstep export gpt2.safetensors --out none --dtype int8
"$build"/examples/train_single --epochs 1 --d-in 8 --d-hidden 16 --d-out 4 --out mlp.safetensors >/dev/null || exit 1
claim 'a checkpoint of no language model: 65' fails_with 65 'lockstep.config' lockstep export mlp.safetensors --out none
mkdir pickled && cp gpt2/config.json pickled && printf '\x80\x02}q\x00.' >pickled/pytorch_model.bin
claim 'import of pickles: 65, by name' fails_with 65 'pickled/pytorch_model.bin: this is a pickle' lockstep import pickled --out x.safetensors
cp -r shards part && rm part/model-00002-of-*
claim 'import of a part: 65, with the missing shard' fails_with 65 'names the shard model-00002-of-' lockstep import part --out x.safetensors
claim 'import without a config: 74' fails_with 74 'config.json' lockstep import run --out x.safetensors
claim 'nothing was written' test ! -e x.safetensors
claim '--help of export shows an example' has_line 'lockstep export runs/gpt2-tiny --out gpt2-tiny-hf' lockstep export --help
claim '--help of import shows an example' has_line 'lockstep import gpt2/ --out gpt2.safetensors' lockstep import --help
finish
