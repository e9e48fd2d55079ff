#!/bin/bash
# test_train_lm.sh -- lockstep train with language models as a user meets them: text to tokens on first use, the same
# loss and gradients however a step is divided, evaluation, what a run leaves behind, mistakes.
#
#   tests/test_train_lm.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 12, global_batch: 8, eval_every: 5, eval_batches: 3 }
optim: { name: adamw, lr: 3e-3, clip: 1.0 }
YAML
have_python() { python3 -c 'import json' 2>/dev/null; }

# --- what it prints and keeps -----------------------------------------------------------------------
train 2 --run.dir run
claim 'a run ends with 0' ends_with 0
claim 'the text becomes token files' prints '^tokens of whale.txt: .cache/tokens/whale.txt-byte-[0-9a-f]{16}: 19[0-9]* for training, 1[0-9]* for validation, vocabulary 257$'
claim 'the last line is final' grep -qE '^final step=12 loss=0x1\.[0-9a-f]+p[-+][0-9]+ digest=[0-9a-f]{32}$' <(final)
claim 'evaluations: every 5 steps and at the end' diff <(printf 'validate step: %2d\n' 5 10 12) <(grep -oE '^validate step: +[0-9]+' out)
claim 'with perplexity' prints '^validate step: 12  loss:  [0-9]\.[0-9]{4}  perplexity: [0-9]+\.[0-9]{2}$'
claim 'tokens are counted' prints 'tokens/s$'
claim 'off a terminal stderr is empty' test ! -s err
first=$(final)
wide=$(sed -nE 's/^validate step: 12  loss: +([0-9.]+) .*/\1/p' out)
step=run/checkpoints/step-00000012
claim 'a checkpoint is a folder of Hugging Face' diff <(printf '%s\n' config.json config.yaml generation_config.json manifest.json model.safetensors sharded tokenizer.json tokenizer_config.json) <(ls $step)
claim 'generation_config.json has the end of text' diff - $step/generation_config.json <<'JSON'
{
  "bos_token_id": 256,
  "eos_token_id": 256,
  "pad_token_id": 256
}
JSON
claim 'tokenizer_config.json has the longest sequence' grep -qx '  "model_max_length": 32,' $step/tokenizer_config.json
claim 'and whole' "$lockstep" ckpt verify $step/model.safetensors

metrics_are_whole() {
    python3 - <<'PY'
import json, math
lines = [json.loads(l) for l in open('run/metrics.jsonl')]
assert [l['step'] for l in lines] == list(range(1, 13))
assert [l['step'] for l in lines if 'eval/loss' in l] == [5, 10, 12]
for l in lines:
    if 'eval/loss' in l:
        assert abs(math.exp(l['eval/loss']) - l['eval/perplexity']) < 1e-9 * l['eval/perplexity'], l
        assert 'eval/accuracy' not in l
    # 4 samples of 32 tokens a rank
    assert abs(l['throughput(tps)'] * l['time_metrics/end_to_end(s)'] - 4 * 32) < 1e-6, l
assert abs(lines[0]['loss_metrics/global_avg_loss'] - math.log(257)) < 0.1, lines[0]
assert lines[-1]['loss_metrics/global_avg_loss'] < lines[0]['loss_metrics/global_avg_loss'] - 1
PY
}
digest_is_of_the_file() { # names in order, each with a zero byte and its values as the file has them: so says its contract
    python3 - <<'PY'
import ctypes, ctypes.util, json, struct
f = open('run/checkpoints/step-00000012/model.safetensors', 'rb').read()
n, = struct.unpack('<Q', f[:8])
head = json.loads(f[8:8 + n])
head.pop('__metadata__')
assert head['transformer.h.0.attn.c_attn.weight']['shape'] == [32, 96], 'as transformers has it'
text = b''
for name in sorted(head):
    a, b = head[name]['data_offsets']
    text += name.encode() + b'\0' + f[8 + n + a:8 + n + b]
x = ctypes.CDLL(ctypes.util.find_library('xxhash') or 'libxxhash.so.0')
class H(ctypes.Structure): _fields_ = [('low', ctypes.c_uint64), ('high', ctypes.c_uint64)]
x.XXH3_128bits.restype = H
x.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
h = x.XXH3_128bits(text, len(text))
want = open('out').read().splitlines()[-1].split('digest=')[1]
assert '%016x%016x' % (h.high, h.low) == want, (want, h.high, h.low)
PY
}
if have_python; then
    claim 'metrics.jsonl has losses, perplexities and tokens a second' metrics_are_whole
    claim 'the digest is that of the file' digest_is_of_the_file
else
    echo 'skipped: there is no python3 to read metrics.jsonl'
fi

# --- again -------------------------------------------------------------------------------------------------
train 2
claim 'the second run finds the tokens' test "$(grep -c '^tokens of' out)" = 0
claim 'and gives the same final line' test "$(final)" = "$first"
"$lockstep" train run/config.yaml --run.dir again >out 2>err
claim 'config.yaml runs and gives the same' test "$(final)" = "$first"
"$lockstep" run --nproc-per-node 2 "$lockstep" train base.yaml --data.path kept >out 2>err
claim 'lockstep run starts it too; data.path is where tokens are kept' test "$(final)" = "$first" -a -e kept/tokenizer.json
mkdir empty full
"$lockstep" run --nproc-per-node 3 -- "$lockstep" train base.yaml --data.path empty --train.steps 1 --train.global_batch 9 >out 2>err
claim 'an empty folder takes them: one rank makes them, the others wait' grep -qE '^final step=1 ' out
claim 'and they are made once' test "$(grep -c '^tokens of' out)" = 1 -a "$(ls empty | tr '\n' ' ')" = 'source.txt tokenizer.json train.bin val.bin '
touch full/notes
"$lockstep" run --nproc-per-node 3 -- "$lockstep" train base.yaml --data.path full --train.steps 1 --train.global_batch 9 >out 2>err
code=$?
claim 'a folder of other files: 78' ends_with 78
claim 'and it is said which' grep -qF 'data.path full: has other files and no train.bin: name a new folder, or an empty one' err
claim 'and nothing is put into it' test "$(ls -A full)" = notes
train 2 --data.path kept
claim 'and found again' test "$(final)" = "$first" -a "$(grep -c '^tokens of' out)" = 0
train 2 --data.name tokens --data.path kept
claim 'data.path alone, a folder' test "$(final)" = "$first"
"$lockstep" data prepare whale.txt --tokenizer byte --format nanogpt --out nano >/dev/null
mkdir story && cp nano/train.bin story/whale_train.bin && cp nano/val.bin story/whale_val.bin
train 2 --data.name tokens --data.path story/whale_train.bin --data.tokenizer '' --model.vocab_size 257
claim 'a file of nanoGPT, its val file beside it' test "$(final)" = "$first" -a "$(grep -c "^validate step" out)" = 3
claim 'without tokenizer.json the checkpoint has none' test ! -e "$(dirname "$(sed -n 's/^checkpoint: //p' out)")/tokenizer.json"

for how in selective full; do
    train 2 --train.recompute $how
    claim "train.recompute $how gives the same final line" test "$(final)" = "$first"
done
kept() { sed -nE "s/.*activations ([0-9]+)\\.([0-9]+) .*/\\1\\2/p" "$1"; }
claim 'and keeps less' test "$(kept out)" -lt "$(train 2; kept out)"

# --- samples, the log line ---------------------------------------------------------------------------------
train 2 --train.sample_every 5 --train.sample_tokens 40 --train.sample_prompt 'Call me' --train.seed 0 --run.dir sampled --log.every 6
claim 'samples every 5 steps and at the end' diff <(printf 'sample at step %s:\n' 5 10 12) <(grep ^sample out)
claim 'they begin with the prompt' test "$(grep -c '^| Call me' out)" = 3
claim 'and change nothing' test "$(final)" = "$first"
sample() { # what stands behind the last "sample at" line
    awk '/^sample at/ { text = ""; on = 1; next } on && /^\| / { text = text substr($0, 3) "\n"; next } { on = 0 } END { printf "%s", text }' out
}
sample >inside
# seed + step is the seed of a sample; what a terminal must not see becomes a question mark in a log
"$lockstep" generate sampled --prompt 'Call me' --tokens 40 --seed 12 --stop-at-eot 2>/dev/null >outside
claim 'the last one is what lockstep generate writes' diff inside <(LC_ALL=C sed 's/\xc2[\x80-\x9f]/?/g' outside | tr '\000-\011\013-\037\177' '?')
claim 'a log line counts tokens' prints '^step: 12  loss: .*  tps: [0-9,]+  [mgt]flops: [0-9.]+  mfu: [0-9.]+%  tok/s: [0-9,]+  exposed: '
train 1 --comm.timeout 1ms --train.sample_every 12 --train.sample_tokens 100
claim 'a sample that others would wait for too long is cut off' prints '^\|.* \.\.\.$'
train 1 --data.name tokens --data.path story/whale_train.bin --data.tokenizer '' --model.vocab_size 257 --train.sample_every 5
claim 'samples need a tokenizer: 78' ends_with 78
claim 'and it says so' says 'there is no tokenizer to write text with: set data.tokenizer'
train 1 --explain mfu
# 2 layers of 12 C^2 + 13 C, V C for the head and 2 C of the last norm: C 32, V 257; attention 12 x 2 x 32 x 32
claim '--explain mfu: the formula of a language model' prints '^F = 6 N \+ 12 L H Q T = 2\.022e\+05 \+ 2\.458e\+04 = 2\.268e\+05 operations per token'
claim '--explain mfu: what is only looked up' prints '^N = [0-9]+ parameters in products: [0-9]+, less 1024 that are only looked up$'

# --- bf16 --------------------------------------------------------------------------------------------------------
train 2 --run.dir bf16 --train.dtype bf16
claim 'train.dtype bf16 trains' ends_with 0
narrow=$(final)
is_close() { # the last validation loss printed, to one, in percent
    awk -v a="$(sed -nE 's/^(validate step: +[0-9]+  loss: +|val_loss=)([0-9.]+) .*/\2/p' out | tail -1)" -v b="$1" -v p="$2" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (p / 100 * b) ^ 2) }'
}
claim 'its loss is within 1 % of that in f32' is_close "$wide" 1
claim 'but not in f32' test "$narrow" != "$first"
claim 'its checkpoint is in f32' grep -aq '"dtype":"F32"' bf16/checkpoints/step-00000012/model.safetensors
train 2 --train.dtype bf16
claim 'it gives the same final line twice' test "$(final)" = "$narrow"
train 2 --train.dtype bf16 --train.recompute full
claim 'and with recompute' test "$(final)" = "$narrow"
"$lockstep" train bf16/config.yaml --eval-only --model.load bf16 >out 2>err
claim 'evaluation of what was trained rounds its weights, too' is_close "$wide" 1

# --- a step, divided -----------------------------------------------------------------------------------------
# One step of plain SGD: the weights move by rate times gradient. The letter e, one label in ten, does not count: ranks
# and micro-batches have unequal numbers of labels.
sgd() { # run folder, ranks, options...
    local name=$1 ranks=$2
    shift 2
    train "$ranks" --optim.name sgd --optim.lr 100 --optim.clip 0 --train.steps 1 --train.eval_batches 0 --run.dir "$name" "$@"
}
same_step() {
    python3 - "$@" <<'PY'
import json, struct, sys
def tensors(run, step):
    f = open('%s/checkpoints/step-%08d/model.safetensors' % (run, step), 'rb').read()
    n, = struct.unpack('<Q', f[:8])
    head = json.loads(f[8:8 + n])
    head.pop('__metadata__')
    return {k: struct.unpack('<%df' % ((v['data_offsets'][1] - v['data_offsets'][0]) // 4),
                             f[8 + n + v['data_offsets'][0]:8 + n + v['data_offsets'][1]]) for k, v in head.items()}
def metrics(run): return json.loads(open(run + '/metrics.jsonl').readline())
before, want = tensors('start', 0), tensors(sys.argv[1], 1)
worst = 0
for run in sys.argv[2:]:
    a, b = metrics(run), metrics(sys.argv[1])
    # sums of 230 losses in double, and in float within a row
    assert abs(a['loss_metrics/global_avg_loss'] / b['loss_metrics/global_avg_loss'] - 1) < 1e-6, (run, a, b)
    assert abs(a['eval/loss'] / b['eval/loss'] - 1) < 1e-5, (run, a, b)
    assert abs(a['grad_norm'] / b['grad_norm'] - 1) < 1e-5, (run, a, b)
    got = tensors(run, 1)
    for k in want:
        way = sum((x - y) ** 2 for x, y in zip(want[k], before[k])) ** 0.5
        off = sum((x - y) ** 2 for x, y in zip(want[k], got[k])) ** 0.5
        worst = max(worst, off / way)
        # floats added in another order: some 256 rows of 2^-24 each
        assert way > 0 and off < 2e-5 * way, (run, k, off, way)
print('worst', worst)
PY
}
for model in gpt2 llama; do
    more=(--model.name $model)
    [ $model = gpt2 ] || more+=(--model.n_kv_head 1 --model.tied false)
    rm -rf start 1x* 2x* 4x*
    train 1 --train.epochs 0 --train.steps 0 --run.dir start "${more[@]}"
    ignoring=("${more[@]}" --data.ignore_token 101)
    sgd 1x1 1 "${ignoring[@]}"
    for ranks in 1 2 4; do
        for micro in 1 2; do
            [ $ranks$micro = 11 ] || sgd ${ranks}x$micro $ranks "${ignoring[@]}" --train.micro_batch $((8 / ranks / micro))
        done
    done
    if have_python; then
        claim "$model: 1, 2, 4 ranks, 1, 2 micro-batches: the same loss and gradients" same_step 1x1 1x2 2x1 2x2 4x1 4x2
    fi
    sgd other 2 "${ignoring[@]}"
    claim "$model: the same twice, to the bit" cmp other/checkpoints/step-00000001/model.safetensors 2x1/checkpoints/step-00000001/model.safetensors
    one=$(loss)
    sgd all 2 "${more[@]}"
    claim "$model: ignored labels do change the loss" test "$(loss)" != "$one"
    rm -rf all other
done
train 4 --comm.transport tcp --run.dir tcp
claim 'over tcp the same loss to the bit as on shm' test "$(loss)" = "$(train 4 --run.dir shm; loss)"

# --- evaluation, export --------------------------------------------------------------------------------------------
val=$(sed -nE 's/^validate step: 12  loss: +([0-9.]+)  perplexity: /val_loss=\1 perplexity=/p' out)
train 2
val=$(sed -nE 's/^validate step: 12  loss: +([0-9.]+)  perplexity: /val_loss=\1 perplexity=/p' out)
train 2 --eval-only --model.load $step/model.safetensors
claim '--eval-only prints what the run printed' test "$(cat out)" = "$val"
train 1 --eval-only --model.load $step
claim 'also of a folder of Hugging Face, on one rank' test "$(cat out)" = "$val"
train 2 --eval-only --model.load run
claim 'also of a run folder' test "$(cat out)" = "$val"
claim 'lockstep export' "$lockstep" export run --out exported
same_tensors() { "$lockstep" ckpt ls "$1" | grep ' F32 ' >a; "$lockstep" ckpt ls "$2" | grep ' F32 ' >b; diff a b; }
claim 'has the tensors of the checkpoint' same_tensors $step/model.safetensors exported/model.safetensors
claim 'and its config' cmp $step/config.json exported/config.json
claim 'and its tokenizer' cmp $step/tokenizer.json exported/tokenizer.json
train 2 --model.preset gpt2-1m --model.n_layer 1 --train.steps 1 --train.seq_len 16 --print-config
claim 'a preset has sizes' prints '^  d_model: 32 .*base.yaml'
"$lockstep" train --model.preset gpt2-1m --data.name whale.txt --data.tokenizer byte --model.n_layer 1 --train.steps 1 \
    --train.global_batch 2 --train.seq_len 16 --train.eval_batches 1 --run.dir preset >out 2>err
claim 'and trains; the vocabulary is the data'"'"'s' prints 'gpt2 with 264,[0-9]{3} parameters'

# --- make train: on what data ----------------------------------------------------------------------------------------
mkdir -p tree/scripts tree/tests/golden
cp "$source_dir/scripts/train" tree/scripts
cp "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" tree/tests/golden
cp -r "$source_dir/recipes" tree
printf '#!/bin/sh\n[ "$1" != data ] || exit %s\necho "$*"\n' '74' >tree/offline
printf '#!/bin/sh\n[ "$1" != data ] || exit %s\necho "$*"\n' '0' >tree/online
chmod +x tree/offline tree/online
make_train() { tree/scripts/train "$@" 2>/dev/null; }
claim 'a corpus that cannot be fetched: a text that is there' has_line \
    'train recipes/gpt2-tiny.yaml --nproc-per-node 2 --data.name .cache/moby-dick-excerpt.txt --train.steps 5' \
    make_train ./offline recipes/gpt2-tiny.yaml --train.steps 5
claim 'which is' cmp tree/.cache/moby-dick-excerpt.txt whale.txt
claim 'one that can: the recipe' test "$(make_train ./online recipes/gpt2-tiny.yaml -x)" = 'train recipes/gpt2-tiny.yaml --nproc-per-node 2 -x'
claim 'images: the recipe, which fetches them' test "$(make_train ./offline recipes/fashion-mnist.yaml)" = \
    'train recipes/fashion-mnist.yaml --nproc-per-node 2'
claim 'it says on which CPUs the last line is the same' grep -qF 'AVX2, AVX-512, AVX512-BF16, AMX' <(tree/scripts/train ./online recipes/gpt2-tiny.yaml 2>&1 >/dev/null)

# --- text of the user's own: other alphabets, other kinds of files -----------------------------------------------------
people=$'\320\234\321\213, \320\275\320\260\321\200\320\276\320\264' # "we, the people"
for _ in {1..300}; do echo "$people: $people, $people."; done >russian.txt
train_recipe() { timeout -k 5 60 "$lockstep" train "$@" --train.steps 2 --train.sample_every 2 --train.sample_tokens 8 --train.eval_batches 1 >out 2>err; code=$?; }
train_recipe gpt2-tiny --nproc-per-node 2 --data.name russian.txt --run.dir russian
claim 'Russian text with an English recipe trains' ends_with 0
claim 'without the prompt, which is said once' test "$(grep -c "train.sample_prompt 'The people of the United States' is left out, since the tokenizer cannot encode it" err)" = 1
claim 'with the character' says 'U+0054'
claim 'and nothing else on stderr' test "$(wc -l <err)" = 1
claim 'samples come nevertheless' test "$(grep -c '^sample at step 2:' out)" = 1
train_recipe gpt2-tiny --data.name russian.txt --train.sample_prompt "$people"
claim 'a prompt of its letters is used' grep -qF "| $people" out
claim 'and nothing is said' test ! -s err
final_of() { train_recipe gpt2-tiny --data.name "$1"; ends_with 0 && final; }
mkdir -p as/txt as/md as/gz as/jsonl as/jsonlgz as/two
cp russian.txt as/txt/a.txt
cp russian.txt as/md/a.md
gzip -c russian.txt >as/gz/a.txt.gz
awk '{ if (NR > 1) printf "\\n"; printf "%s", $0 } BEGIN { printf "{\"id\": 1, \"text\": \"" } END { printf "\\n\"}\n" }' russian.txt >as/jsonl/a.jsonl
gzip -c as/jsonl/a.jsonl >as/jsonlgz/a.jsonl.gz
want=$(final_of russian.txt)
for form in as/txt as/md/a.md as/md as/gz/a.txt.gz as/gz as/jsonl/a.jsonl as/jsonl as/jsonlgz; do
    claim "$form: the same text, the same end" test "$(final_of $form)" = "$want" -a -n "$want"
done
dir_of() { train_recipe gpt2-tiny --data.name "$1"; sed -nE 's/^data: ([^,]*)\/train.bin,.*/\1/p' out; }
first_dir=$(dir_of as/jsonl/a.jsonl)
claim 'tokens are made once' test "$(grep -c '^tokens of' out)" = 0
sed -i 's/"id": 1/"id": 2/' as/jsonl/a.jsonl
claim 'other content, other tokens' test "$(dir_of as/jsonl/a.jsonl)" != "$first_dir" -a -n "$first_dir"

# --- mistakes -------------------------------------------------------------------------------------------------------
mistake() { # code, text, arguments...
    local want=$1 text=$2
    shift 2
    train 2 "$@"
    ends_with "$want" && says "$text"
}
once() { # the same, and found before any rank starts: one line
    mistake "$@" && [ "$(wc -l <err)" = 1 ]
}
claim 'a sequence longer than the model' once 78 "train.seq_len is 33, but the model's longest sequence, model.seq_len, is 32" --train.seq_len 33
claim 'heads that do not divide' once 78 'model.d_model 32 is not a multiple of model.n_head 3' --model.n_head 3
claim 'an unknown preset' once 78 "model.preset is 'gpt5': expected one of gpt2-1m, gpt2," --model.preset gpt5
claim 'a preset of another model' once 78 'model.preset llama-15m is of model.name llama, not gpt2' --model.preset llama-15m
claim 'no data' once 78 'data.path is missing' --data.name tokens
claim 'images' once 78 'data.name is fashion-mnist: gpt2 learns from text' --data.name fashion-mnist
claim 'a text that is not there' once 74 'nofile.txt: not there; nor is it a corpus' --data.name nofile.txt
claim 'tokens that are not there' once 74 'nowhere: not there: data.path names token files' --data.name tokens --data.path nowhere
printf 'another text\n%.0s' {1..400} >other.txt
claim 'tokens of another text than data.name' once 78 \
    'data.path kept has tokens that were not made of data.name other.txt with data.tokenizer byte: set data.name to tokens' --data.name other.txt --data.path kept
claim 'tokens of the same text with another tokenizer' once 78 \
    'data.path kept has tokens that were not made of data.name whale.txt with data.tokenizer char: set data.name to tokens' --data.tokenizer char --data.path kept
claim 'tokens of who knows what' once 78 'data.path story2 has tokens that were not made of data.name whale.txt' --data.path "$(mkdir story2 && cp kept/*.bin kept/tokenizer.json story2 && echo story2)"
claim 'tokens that lockstep data prepare made of the same' sh -c "'$lockstep' data prepare whale.txt --tokenizer byte --out prepared >/dev/null &&
    '$lockstep' train base.yaml --data.path prepared | tail -1 | grep -q '^final step=12'"
"$lockstep" data prepare whale.txt --tokenizer char --out letters >/dev/null
claim 'data.tokenizer is not the one of the tokens' once 78 \
    'data.tokenizer byte has 257 tokens, but the tokens of data.path were made with letters/tokenizer.json, which has' --data.name tokens --data.path letters
claim 'nor char that of bytes' once 78 'data.tokenizer char has ' --data.name tokens --data.path kept --data.tokenizer char
claim 'characters are' train 1 --data.name tokens --data.path letters --data.tokenizer char --train.steps 1
claim 'or nothing is said' train 1 --data.name tokens --data.path letters --data.tokenizer '' --train.steps 1
claim 'tokens without a vocabulary' once 78 'model.vocab_size is missing' --data.name tokens --data.path story/whale_train.bin --data.tokenizer ''
mkdir -p raw && cp story/whale_train.bin raw/train.bin
claim 'tokens without a header, outside the vocabulary' mistake 65 \
    'model.vocab_size is too small; the file has no header of llm.c'"'"'s, so it was read as nanoGPT'"'"'s uint16 tokens' \
    --data.name tokens --data.path raw --data.tokenizer '' --model.vocab_size 100 --train.eval_every 0 --train.eval_batches 0
claim 'text instead of tokens' once 65 'whale.txt: begins with text, and data.path names tokens: set data.name to it' \
    --data.name tokens --data.path whale.txt --data.tokenizer '' --model.vocab_size 50257
claim 'unless it is said that these are tokens' train 1 --train.steps 1 --data.format nanogpt --data.name tokens --data.path whale.txt --data.tokenizer '' \
    --model.vocab_size 65536
claim 'a tokenizer with more tokens than the model' once 78 "model.vocab_size is 256, but the data's tokenizer has 257 tokens" --model.vocab_size 256
claim 'a token outside the vocabulary, with file, byte and id' mistake 65 ', but the vocabulary has 100: made with another tokenizer, or model.vocab_size is too small' \
    --data.name tokens --data.path story/whale_train.bin --data.tokenizer '' --model.vocab_size 100
claim 'a vocabulary with more than the tokenizer' train 1 --train.steps 1 --model.vocab_size 300
claim 'is trained' ends_with 0
head -c 3000 whale.txt >short.txt
claim 'a text shorter than a sequence' once 78 'lower train.seq_len' --data.name short.txt --model.seq_len 3000
claim 'a trace of steps that there are not' once 78 'trace.steps begins at 100, but the run has 12 steps' --trace.steps 100
claim 'a fault at a step that there is not' once 78 'inject kill@1:100: the run has 12 steps' --inject kill@1:100
claim 'a kind of file that is not read' once 65 'whale.pdf: not a kind of text that is read: expected a file that ends in .txt, .md, .jsonl, each also with .gz, or a folder' \
    --data.name "$(cp whale.txt whale.pdf && echo whale.pdf)"
claim 'a damaged gzip file' once 65 'cut.txt.gz: byte 1000: the gzip stream is cut off' \
    --data.name "$(gzip -c whale.txt | head -c 1000 >cut.txt.gz; echo cut.txt.gz)"
claim 'a document without text' once 65 'a.jsonl: line 2: it has no field "text", which holds a document; its fields: title, body' \
    --data.name "$(printf '{"text":"a"}\n{"title":"b","body":"c"}\n' >a.jsonl; echo a.jsonl)"
# started by lockstep run: each rank reads the same arguments, one of them reports
alike() { # code, text, arguments of train...
    local want=$1 text=$2
    shift 2
    timeout -k 5 60 "$lockstep" run --nproc-per-node 3 "$lockstep" train "$@" >out 2>err
    code=$?
    ends_with "$want" && [ "$(grep '^lockstep train: error' err | grep -cF -- "$text")" = 1 ] || { cat err; return 1; }
}
claim 'one message: a missing file' alike 74 'nofile.yaml' nofile.yaml
claim 'one message: an unknown key' alike 64 'model.nonsense' base.yaml --model.nonsense 1
claim 'one message: values that do not fit' alike 78 'train.global_batch is 8, which 3 ranks cannot share equally' base.yaml
claim 'one message: a missing text' alike 74 'nofile.txt: not there' base.yaml --train.global_batch 9 --data.name nofile.txt
claim 'one message: what ranks find once they have met' alike 78 'lower train.seq_len' base.yaml --train.global_batch 9 --data.name short.txt --model.seq_len 3000
different() { # each rank gets other arguments: none may fail without a word
    timeout -k 5 60 "$lockstep" run --nproc-per-node 2 -- sh -c "exec '$lockstep' train nofile\$RANK.yaml" >out 2>err
    grep -q 'nofile0.yaml' err && grep -q 'nofile1.yaml' err || { cat err; return 1; }
}
claim 'ranks with other arguments each report' different
head -c 4000 /dev/zero | tr '\0' 0 >zeros.txt
claim 'a step whose labels are all ignored' mistake 78 'no label of step 1 counts' --data.name zeros.txt --data.ignore_token 48
claim 'a learning rate that blows up' mistake 80 'is not finite' --optim.lr 1e30 --optim.clip 0
printf 'no capitals here\n%.0s' {1..400} >small.txt
train 2 --data.name small.txt --data.tokenizer char --train.steps 1 --train.eval_batches 1 --train.sample_every 5 --train.sample_prompt 'Call me'
claim 'a prompt of the command line that the tokenizer cannot read is left out, too' ends_with 0
claim 'and that is said' says "train.sample_prompt 'Call me' is left out"
claim 'and one that is longer than the model' once 78 'train.sample_prompt has 36 tokens, the model'"'"'s longest sequence is 32: shorten it' \
    --train.sample_every 5 --train.sample_prompt 'Call me Ishmael. Some years ago, ...'
train 1 --data.name small.txt --data.tokenizer char --train.steps 1 --run.dir small
tries() { # what is printed to try next
    sed -n 's/^try next: //p' out >try.sh
    bash try.sh >tried 2>err || { cat try.sh err; return 1; }
}
claim 'the prompt to try next is one that the tokenizer has' tries
claim 'the first words of the text' prints "^try next: .* --prompt 'no capit"
train 1 --train.steps 1 --run.dir bytes
claim 'or the usual one' prints "^try next: .* --prompt 'The people'"
claim 'without samples nobody minds' train 1 --data.name small.txt --data.tokenizer char --train.steps 1 --train.sample_prompt 'Call me'
printf 'abc\xff' >broken.txt
claim 'bytes that are not UTF-8' once 65 'broken.txt: byte 3: 0xff is not UTF-8' --data.name broken.txt --data.tokenizer char
finish
