#!/bin/bash
# test_train_load.sh -- model.load: the model is what the folder or file says it is, and a key that says otherwise is
# refused; the formula goes on into everything a run leaves behind.
#
#   tests/test_train_load.sh BUILD
. "$(dirname "$0")/harness_train.sh"
golden=$source_dir/tests/golden/hf
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" | tr -cs 'a-zA-Z' ' ' | head -c 20000 >words.txt
cat >base.yaml <<YAML
data: { name: words.txt, tokenizer: char, path: tokens }
train: { steps: 3, global_batch: 4, seed: 3 }
optim: { name: adamw, lr: 1e-3 }
YAML
# A formula far from every default: a key that is left out changes the loss in the first step.
cp -r "$golden/llama" far && cp -r "$golden/gpt2" gpt
chmod -R u+w far gpt
sed -i -E 's/"rms_norm_eps": [^,]*/"rms_norm_eps": 0.25/; s/"rope_theta": [0-9.]+/"rope_theta": 100.0/' far/config.json
sed -i -E 's/"layer_norm_epsilon": [^,]*/"layer_norm_epsilon": 0.125/; s/"embd_pdrop": [^,]*/"embd_pdrop": 0.25/' gpt/config.json
shown() { # key, value and origin, as --print-config has them
    grep -E "^  $1: $2 +# $3\$" out || { grep "^  $1:" out; return 1; }
}

# --- taken from config.json --------------------------------------------------------------------------
train 1 --model.load far --print-config
claim 'the name comes from config.json' shown name llama far/config.json
for line in n_layer=2 n_head=4 n_kv_head=2 d_model=32 d_ff=48 vocab_size=64 seq_len=16 tied=false norm_eps=0.25 rope_theta=100; do
    claim "${line%=*} comes from config.json" shown "${line%=*}" "${line#*=}" far/config.json
done
train 1 --model.load gpt --print-config
for line in name=gpt2 seq_len=16 tied=true norm_eps=0.125 embd_dropout=0.25 attn_dropout=0; do
    claim "gpt2: ${line%=*} comes from config.json" shown "${line%=*}" "${line#*=}" gpt/config.json
done
train 1 --model.load gpt --model.embd_dropout 0.5 --print-config
claim 'a dropout that is given wins' shown embd_dropout 0.5 flag
train 1 --model.load far --model.n_layer 2 --model.norm_eps 0.25 --model.vocab_size 64 --print-config
claim 'a key that agrees stays as it was given' shown n_layer 2 flag

# --- and trained with -------------------------------------------------------------------------------------
train 2 --model.load far --run.dir run
claim 'the folder alone trains, with a smaller vocabulary in the data' ends_with 0
first=$(final)
claim 'config.yaml of the run has the formula' grep -qx '  norm_eps: 0.25' run/config.yaml
claim 'the checkpoint has it' grep -q '"rms_norm_eps": 0.25' run/checkpoints/step-00000003/config.json
claim 'and the base of the rotary angles' grep -qF '"rope_theta": 1e+02' run/checkpoints/step-00000003/config.json
"$lockstep" export run --out exported >/dev/null
claim 'the export has it' grep -q '"rms_norm_eps": 0.25' exported/config.json
"$lockstep" train run/config.yaml --run.dir again >out 2>err
claim 'config.yaml runs again and gives the same' test "$(final)" = "$first"
claim 'import' "$lockstep" import far --out far.safetensors
train 2 --model.load far.safetensors
claim 'a lone file says the same in its metadata' test "$(final)" = "$first"
train 1 --model.load far.safetensors --print-config
claim 'and is the origin' shown norm_eps 0.25 far.safetensors
train 1 --model.load "$golden/llama"
claim 'another epsilon and base are another loss' test "$(loss)" != "$(sed -nE 's/.* loss=([^ ]+) .*/\1/p' <<<"$first")"

train 1 --model.load run --train.steps 1
again=$(loss)
for from in run/checkpoints/step-00000003 run/checkpoints/step-00000003/model.safetensors exported; do
    train 1 --model.load $from --train.steps 1
    claim "$from is the run's model" test "$(loss)" = "$again"
done
train 1 --eval-only --model.load run
valued=$(cat out)
claim '--eval-only knows the formula of a run' ends_with 0
train 1 --eval-only --model.load exported
claim 'and of an export' test "$(cat out)" = "$valued"
"$lockstep" generate run --prompt 'the ' --tokens 20 --temperature 0 >a 2>/dev/null
"$lockstep" generate exported --prompt 'the ' --tokens 20 --temperature 0 >b 2>/dev/null
claim 'generate, too' test -s a -a "$(cat a)" = "$(cat b)"
sed -i 's/0.25/0.0625/' exported/config.json
train 1 --eval-only --model.load exported
claim 'config.json is what counts in a folder' test "$(cat out)" != "$valued"

cp -r run/checkpoints/step-00000003 edited && sed -i 's/"rms_norm_eps": 0.25/"rms_norm_eps": 0.0625/' edited/config.json
"$lockstep" import edited --out edited.safetensors >/dev/null
train 1 --model.load edited.safetensors --print-config
claim 'of a checkpoint that was edited, too, for import' shown norm_eps 0.0625 edited.safetensors
cp -r "$golden/llama" tied && chmod -R u+w tied
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' tied/config.json
claim 'a tied head that the files have otherwise' fails_with 65 "though config.json ties them" \
    "$lockstep" train base.yaml --model.load tied

# --- refused -------------------------------------------------------------------------------------------------
refused() { # text, arguments...
    local text=$1
    shift
    train 2 "$@"
    ends_with 78 && says "$text" && [ "$(wc -l <err)" = 1 ]
}
while read -r key given found; do
    claim "$key against config.json" refused "model.$key is $given (flag), but far/config.json says $found: leave the key out" \
        --model.load far "--model.$key" "$given"
done <<'KEYS'
name gpt2 llama
n_layer 3 2
n_head 2 4
n_kv_head 4 2
d_model 64 32
d_ff 128 48
vocab_size 65 64
seq_len 1024 16
tied true false
norm_eps 1e-05 0.25
rope_theta 10000 100
KEYS
claim 'a flag of 0 is not the vocabulary of config.json' refused 'model.vocab_size is 0 (flag)' --model.load far --model.vocab_size 0
printf 'model: { d_ff: 0, vocab_size: 0, n_kv_head: 0 }\n' | cat base.yaml - >zeros.yaml
claim 'zeros in a file leave it to the model' "$lockstep" train zeros.yaml --model.load far --train.steps 1
printf 'model: { norm_eps: 1e-6 }\n' | cat base.yaml - >other.yaml
claim 'a key of the file, with its line' fails_with 78 'model.norm_eps is 1e-06 (other.yaml:4), but far/config.json says 0.25' \
    "$lockstep" train other.yaml --model.load far
claim 'a preset' refused 'model.n_layer is 6 (model.preset llama-15m), but far/config.json says 2' --model.load far --model.preset llama-15m
claim 'a tokenizer with more tokens' refused "model.vocab_size is 64, but the data's tokenizer has 257 tokens" --model.load far \
    --data.tokenizer byte --data.path bytes
odd() { # model, key, value: config.json with the key is refused by its name
    rm -rf odd && cp -r "$1" odd && sed -i "s|^{|{ \"$2\": $3,|" odd/config.json
    refused "\"$2\" is" --model.load odd
}
while read -r model key value; do
    sed -i "/\"$key\"/d" $model/config.json
    claim "$key in config.json of $model" odd $model $key "$value"
done <<'KEYS'
gpt activation_function "relu"
gpt scale_attn_by_inverse_layer_idx true
gpt reorder_and_upcast_attn true
gpt add_cross_attention true
far hidden_act "gelu"
far attention_bias true
far mlp_bias true
far head_dim 16
far sliding_window 128
KEYS
claim 'scaled rotary positions' eval 'sed "s|^{|{ \"rope_scaling\": { \"rope_type\": \"linear\", \"factor\": 2.0 },|" far/config.json >odd/config.json &&
    refused "scales the rotary positions" --model.load odd'
claim 'a folder with no model' fails_with 65 'neither model.safetensors nor' "$lockstep" train base.yaml --model.load tokens
claim 'a file that is not there' fails_with 74 'reading model.load nowhere' "$lockstep" train base.yaml --model.load nowhere

# --- an mlp ------------------------------------------------------------------------------------------------------
cat >base.yaml <<YAML
model: { name: mlp, dims: [784, 16, 10], activation: gelu }
data: { name: fashion-mnist, path: $data }
train: { steps: 3, global_batch: 96, seed: 3 }
YAML
train 1 --run.dir mlp
tested=$(sed -nE 's/^epoch=0 (test_loss=.*)/\1/p' out)
sed -i 1d base.yaml
train 1 --eval-only --model.load mlp
claim 'sizes and activation of an mlp come from its checkpoint' test -n "$tested" -a "$(cat out)" = "$tested"
claim 'another activation is refused' refused 'model.activation is relu (flag), but mlp/checkpoints/step-00000003/model.safetensors says gelu' \
    --eval-only --model.load mlp --model.activation relu
claim 'other sizes are refused' refused 'model.dims is 784,32,10 (flag), but mlp/checkpoints/step-00000003/model.safetensors says 784,16,10' \
    --eval-only --model.load mlp --model.dims 784,32,10
finish
