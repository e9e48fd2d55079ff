#!/bin/bash
# lockstep generate from outside: every kind of folder gives the same text, options do what they say, and what is refused.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
golden=$source_dir/tests/golden/hf
lockstep() { "$build/lockstep" "$@"; }
write() { lockstep generate "$@" 2>/dev/null; }

# the golden models know 64 tokens: a tokenizer of 62 characters and end of text
printf '%s \n' {a..z} {A..Z} {0..7} | tr -d '\n' >chars.txt
lockstep data prepare chars.txt --tokenizer char --val 0 --out chars >/dev/null || exit 1

# a Hugging Face folder, a checkpoint, its folder, a run folder: one model, one text
for model in gpt2 llama; do
    mkdir -p $model run-$model/checkpoints/step-0000000{1,2}
    cp "$golden/$model"/* $model
    lockstep import $model --out run-$model/checkpoints/step-00000002/model.safetensors >/dev/null || exit 1
    newest=run-$model/checkpoints/step-00000002
    claim "$model: no tokenizer beside the weights: 65" fails_with 65 'has no tokenizer.json: say which' lockstep generate $model
    claim "$model: another tokenizer is named" write $model --tokenizer chars/tokenizer.json --prompt Hello --tokens 9
    claim "$model: or the folder that it is in" write $model --tokenizer chars --prompt Hello --tokens 9
    cp chars/tokenizer.json $model
    cp chars/tokenizer.json $newest
    write $model --prompt Hello --tokens 9 --seed 3 >want || echo "FAILED: $model"
    claim "$model: the prompt and 9 characters" test "$(wc -m <want)" = 15
    claim "$model: the prompt first" test "$(head -c 5 want)" = Hello
    for from in run-$model $newest $newest/model.safetensors; do
        claim "$model: the same from $from" cmp want <(write $from --prompt Hello --tokens 9 --seed 3)
    done
    mkdir run-$model/checkpoints/step-00000003
    cp $newest/tokenizer.json run-$model/checkpoints/step-00000003
    claim "$model: a save that was cut short is skipped" cmp want <(write run-$model --prompt Hello --tokens 9 --seed 3)
    claim "$model: and that is said" fails_with 0 'step-00000003 is not whole and is skipped' lockstep generate run-$model --tokens 1
    claim "$model: export takes the same one" has_line "written from $newest" lockstep export run-$model --out out-$model
    claim "$model: into a folder that was not there" test -s out-$model/config.json
    claim "$model: of which nothing else is left" test -z "$(ls -d .out-$model* 2>/dev/null)"
    rm -r run-$model/checkpoints/step-00000003
    claim "$model: in its own folder" cmp want <(cd $newest && write model.safetensors --prompt Hello --tokens 9 --seed 3)
    lockstep generate $model --prompt Hello --tokens 9 2>err >/dev/null
    claim "$model: the speed is told" grep -q 'tokens/s; prompt: 5 in' err
    claim "$model: and what it is" grep -q "$model with .* parameters, context 16" err
done
cp "$newest/model.safetensors" elsewhere.safetensors
claim 'config.json beside a checkpoint changes nothing' cp llama/config.json "$newest"
claim 'the same text' cmp want <(write "$newest" --prompt Hello --tokens 9 --seed 3)

claim 'another seed, another text' test "$(write llama --prompt Hello --seed 3)" != "$(write llama --prompt Hello --seed 4)"
greedy=$(write llama --prompt Hello --temperature 0 --tokens 11)
claim 'temperature 0: no seed matters' test "$greedy" = "$(write llama --prompt Hello --temperature 0 --tokens 11 --seed 9)"
claim 'top-k 1 is the same' test "$greedy" = "$(write llama --prompt Hello --top-k 1 --tokens 11 --seed 9)"
claim 'a tiny top-p is the same' test "$greedy" = "$(write llama --prompt Hello --top-p 1e-9 --tokens 11)"
claim 'without the prompt' test "${greedy#Hello}" = "$(write llama --prompt Hello --temperature 0 --tokens 11 --echo false)"
printf Hello >prompt.txt
claim 'a prompt from a file' test "$greedy" = "$(write llama --file prompt.txt --temperature 0 --tokens 11)"
claim 'without a prompt a document begins' test -n "$(write llama --tokens 12 --seed 1)"
lockstep generate llama --prompt Hello --tokens 60 >text 2>err
claim 'beyond the context it goes on' grep -q 'context window slid 6 times' err
claim 'to all 60' grep -q '^60 tokens' err

claim 'no argument: 64' fails_with 64 'expected one run folder' lockstep generate
claim 'an absent folder: 74' fails_with 74 'absent' lockstep generate absent --tokenizer byte
claim 'and that it is absent, not that a tokenizer is' fails_with 74 '/absent: cannot be opened: No such file' \
    lockstep generate "$tmp/absent"
claim 'an empty folder: 65' fails_with 65 'neither model.safetensors nor' lockstep generate chars/.. --tokenizer byte
claim 'a temperature below 0: 64' fails_with 64 'temperature' lockstep generate llama --temperature -1
claim 'top-p of 0: 64' fails_with 64 'top-p' lockstep generate llama --top-p 0
claim 'top-p above 1: 64' fails_with 64 'top-p' lockstep generate llama --top-p 1.5
claim 'two prompts: 64' fails_with 64 'one of them' lockstep generate llama --prompt a --file prompt.txt
claim 'a prompt that is not UTF-8: 64' fails_with 64 'UTF-8' lockstep generate llama --prompt $'a\xff'
claim 'a character that is no token: 64' fails_with 64 'reading the prompt' lockstep generate llama --prompt 'a%'
claim 'a prompt longer than the model: 64' fails_with 64 'has 17 tokens, the model'"'"'s longest sequence is 16' \
    lockstep generate llama --prompt 12345671234567123
claim 'a tokenizer of another model: 64' fails_with 64 'the model'"'"'s vocabulary is 0 to 63' \
    lockstep generate llama --tokenizer byte --prompt z
claim 'nothing is printed then' test -z "$(write llama --tokenizer byte --prompt z)"
mkdir pickled && cp llama/config.json chars/tokenizer.json pickled && printf '\x80\x02}q\x00.' >pickled/pytorch_model.bin
claim 'a folder of pickles: 65, by name' fails_with 65 'pickled/pytorch_model.bin: this is a pickle' lockstep generate pickled
claim 'a pickle: 65, by name' fails_with 65 'pytorch_model.bin: this is a pickle' lockstep generate pickled/pytorch_model.bin
rm pickled/tokenizer.json
claim 'with no tokenizer beside it too' fails_with 65 'this is a pickle' lockstep generate pickled/pytorch_model.bin
mkdir other && cp llama/* other && sed -i 's/"model_type": "llama"/"model_type": "mamba"/' other/config.json
claim 'an unknown model: 78' fails_with 78 mamba lockstep generate other --prompt a
"$build"/examples/train_single --epochs 1 --d-in 8 --d-hidden 16 --d-out 4 --out mlp.safetensors >/dev/null || exit 1
claim 'a checkpoint of no language model: 65' fails_with 65 'lockstep.config' lockstep generate mlp.safetensors --tokenizer byte
head -c 40000 elsewhere.safetensors >cut.safetensors
claim 'a file that is cut short: 65' fails_with 65 'cut.safetensors' lockstep generate cut.safetensors --tokenizer chars/tokenizer.json --prompt a
claim 'a full disk is no success' fails_with 74 'standard output' sh -c "'$build/lockstep' generate llama --prompt a >/dev/full"
claim '--help shows an example' has_line 'lockstep generate runs/gpt2-tiny --prompt' lockstep generate --help
# flag, least, most, one below, one above: within, the flag is taken, and then it is the folder that is not there
ends() {
    claim "--$1: $4 is refused" fails_with 64 "--$1: expected" lockstep generate absent "--$1=$4"
    claim "--$1: $5 is refused" fails_with 64 "--$1: expected" lockstep generate absent "--$1=$5"
    claim "--$1: $2 is taken" fails_with 74 'absent' lockstep generate absent "--$1=$2"
    claim "--$1: $3 is taken" fails_with 74 'absent' lockstep generate absent "--$1=$3"
    claim "--$1: --help has both ends" grep -qF "$2..$3)" <(lockstep generate --help | tr -s ' \n' ' ')
}
ends tokens 1 4294967295 0 4294967296
ends top-k 0 16777216 -1 16777217
ends seed 0 9223372036854775807 -1 9223372036854775808
ends temperature 0 1e12 -1e-9 1.0000001e12
for most in '--temperature 1e12' '--temperature 1e-300' '--top-k 16777216' '--seed 9223372036854775807'; do
    # shellcheck disable=SC2086
    claim "$most writes" test "$(write gpt2 --prompt Hello --tokens 9 $most | wc -m)" -ge 15
done
finish
