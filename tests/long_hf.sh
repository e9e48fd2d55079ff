#!/bin/bash
# long_hf.sh -- files between Lockstep and the real transformers and safetensors, both ways. Skipped where no
# Python has them; LOCKSTEP_ORACLE_PYTHON names one that has (pip install torch transformers safetensors). Passes with
# transformers 4.57 and 5.23.
#
#   tests/long_hf.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
python=${LOCKSTEP_ORACLE_PYTHON:-python3}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
"$python" -c 'import torch, transformers, safetensors' 2>/dev/null ||
    { echo "skipped: $python has no torch, transformers and safetensors"; finish; }
golden=$source_dir/tests/golden
lockstep() { "$build/lockstep" "$@"; }
oracle() { "$python" "$golden/hf_oracle.py" "$@"; }

# what transformers saves, Lockstep reads; what Lockstep writes of it, transformers loads to the same
claim 'transformers makes models' oracle make saved
models='gpt2 gpt2-untied gpt2-bf16 gpt2-bare llama llama-tied llama-f16 mixtral mixtral-bf16 qwen2-moe'
for model in $models; do
    claim "import of $model" lockstep import saved/$model --out $model.safetensors
    claim "export of $model" lockstep export $model.safetensors --out whole/$model
    claim "$model: one file is the same to transformers" oracle same saved/$model whole/$model
    claim "$model: export in shards" lockstep export $model.safetensors --out shards/$model --max-shard-size 60KiB
    claim "$model: shards are the same to transformers" oracle same saved/$model shards/$model
    claim "$model: safetensors opens the file" oracle tensors whole/$model/model.safetensors
done
claim 'bf16 is bf16 to transformers' lockstep export gpt2-bf16.safetensors --out narrow/gpt2 --dtype bf16
claim 'and the same' oracle same saved/gpt2-bf16 narrow/gpt2
claim 'f16 is f16 to transformers' lockstep export llama-f16.safetensors --out narrow/llama --dtype f16 --max-shard-size 60KiB
claim 'and the same' oracle same saved/llama-f16 narrow/llama

# what they write is the same: both take the likeliest token each time, to the end of their 40
printf '%s\n' a 'The state of' 'A longer one, of 31 characters.' >prompts.txt
claim 'transformers writes' oracle generate prompts.txt saved/*
for model in $models; do
    number=0
    while read -r prompt; do
        number=$((number + 1))
        claim "$model continues '$prompt' as transformers does" cmp saved/$model/made-$number.txt \
            <(lockstep generate saved/$model --tokenizer byte --prompt "$prompt" --temperature 0 --tokens $((40 - ${#prompt})) 2>/dev/null)
    done <prompts.txt
done

for model in gpt2 llama; do
    claim "golden $model: import" lockstep import "$golden/hf/$model" --out golden-$model.safetensors
    claim "golden $model: export" lockstep export golden-$model.safetensors --out golden-$model --max-shard-size 40KiB
    claim "golden $model: transformers computes the golden logits from it" oracle logits golden-$model "$golden/hf/$model.safetensors"
done

# with experts: what transformers finds when it trains (tests/test_hf_moe.sh) is made again, and is what it was
claim 'golden experts: transformers trains them again' "$python" "$golden/make-moe.py" moe
near() { # of another processor: other last bits, as in test_hf_moe.sh
    paste "$1" "$2" | awk 'function off(a, b) { return a > b ? (a - b) / b : (b - a) / b }
        off($1, $3) > 2e-6 || off($2, $4) > 1e-4 { print "step " NR ": " $0; bad = 1 } END { exit bad || NR != 20 }'
}
for model in mixtral qwen2_moe; do
    claim "golden $model: the same losses and norms, within float rounding" near moe/$model.txt "$golden/moe/$model.txt"
    claim "golden $model: import" lockstep import "$golden/moe/$model" --out golden-$model.safetensors
    claim "golden $model: export" lockstep export golden-$model.safetensors --out golden-$model --max-shard-size 40KiB
    claim "golden $model: it is the same to transformers" oracle same "$golden/moe/$model" golden-$model
done

# a run's checkpoint is a folder of transformers' as it is: its loss on the validation file is what the run printed
gunzip -c "$golden/moby-dick-excerpt.txt.gz" >whale.txt
for model in gpt2 llama; do
    lockstep train --model.name $model --model.n_layer 2 --model.n_head 2 --model.d_model 32 --model.seq_len 32 --data.name whale.txt \
        --data.tokenizer byte --data.path tokens --train.steps 40 --train.global_batch 8 --nproc-per-node 2 --run.dir run-$model >out 2>err
    claim "$model: a run" test -s err -o -d run-$model/checkpoints/step-00000040
    claim "$model: transformers finds the loss of the run in its checkpoint" oracle trained run-$model/checkpoints/step-00000040 \
        tokens/val.bin 32 "$(sed -nE 's/^validate step: 40  loss: +([0-9.]+) .*/\1/p' out)"
    # of files of ranks alone, `ckpt merge` makes such a folder
    lockstep train --model.name $model --model.n_layer 2 --model.n_head 2 --model.d_model 32 --model.seq_len 32 --data.name whale.txt \
        --data.tokenizer byte --data.path tokens --train.steps 40 --train.global_batch 9 --nproc-per-node 3 --zero.stage 3 \
        --checkpoint.consolidate never --run.dir shards-of-$model >out 2>err
    claim "$model: ckpt merge" lockstep ckpt merge shards-of-$model/checkpoints/step-00000040 --out merged-$model
    claim "$model: transformers finds the loss of the run in the merged folder, within float rounding" oracle trained merged-$model tokens/val.bin 32 \
        "$(sed -nE '$s/.*"eval\/loss": ([^,]+),.*/\1/p' shards-of-$model/metrics.jsonl)" 2e-6
    claim "$model: and its parameters are the ranks' to the bit" test "$(lockstep ckpt digest merged-$model/model.safetensors | cut -d' ' -f1)" = \
        "$(sed -nE '$s/.* digest=//p' out)"
    claim "$model: transformers has these bits" oracle bits merged-$model
done

# models with experts, whose ranks divide them
for shared in 0 24; do
    lockstep train --model.name moe --model.n_layer 2 --model.n_head 2 --model.d_model 32 --model.seq_len 32 --model.n_experts 4 \
        --model.shared_expert $shared --data.name whale.txt --data.tokenizer byte --data.path tokens --train.steps 40 \
        --train.global_batch 8 --nproc-per-node 4 --parallel.ep 2 --parallel.tp 2 --zero.stage 1 --run.dir run-moe-$shared >out 2>err
    claim "moe, shared expert $shared: a run" test -s err -o -d run-moe-$shared/checkpoints/step-00000040
    claim "moe, shared expert $shared: transformers finds the loss of the run in its checkpoint" oracle trained \
        run-moe-$shared/checkpoints/step-00000040 tokens/val.bin 32 "$(sed -nE 's/^validate step: 40  loss: +([0-9.]+) .*/\1/p' out)"
    claim "moe, shared expert $shared: an export" lockstep export run-moe-$shared --out exported-moe-$shared --max-shard-size 60KiB
    claim "moe, shared expert $shared: the export is the same to transformers" oracle same run-moe-$shared/checkpoints/step-00000040 \
        exported-moe-$shared
    lockstep train --model.name moe --model.n_layer 2 --model.n_head 2 --model.d_model 32 --model.seq_len 32 --model.n_experts 4 \
        --model.shared_expert $shared --data.name whale.txt --data.tokenizer byte --data.path tokens --train.steps 40 \
        --train.global_batch 9 --nproc-per-node 3 --zero.stage 3 --checkpoint.consolidate never --run.dir shards-of-moe-$shared >out 2>err
    claim "moe, shared expert $shared: ckpt merge" lockstep ckpt merge shards-of-moe-$shared/checkpoints/step-00000040 --out merged-moe-$shared
    claim "moe, shared expert $shared: transformers finds the loss of the run in the merged folder" oracle trained merged-moe-$shared \
        tokens/val.bin 32 "$(sed -nE '$s/.*"eval\/loss": ([^,]+),.*/\1/p' shards-of-moe-$shared/metrics.jsonl)" 2e-6
    claim "moe, shared expert $shared: and its parameters are the ranks' to the bit" test \
        "$(lockstep ckpt digest merged-moe-$shared/model.safetensors | cut -d' ' -f1)" = "$(sed -nE '$s/.* digest=//p' out)"
done

# the tokenizer of a run and of its export, to AutoTokenizer: the same ids, nothing around them, the text again
claim "GPT-2's vocabulary" oracle vocabulary "$golden/gpt2-vocab.bpe.gz" vocabulary
for model in gpt2 llama; do
    for tokenizer in char byte vocabulary/; do
        name=$model-${tokenizer%/}
        lockstep train --model.name $model --model.n_layer 1 --model.n_head 2 --model.d_model 16 --model.seq_len 32 \
            --data.name whale.txt --data.tokenizer $tokenizer --data.path tokens-$name --train.steps 1 --train.global_batch 1 \
            --train.eval_batches 1 --run.dir run-$name >out 2>err
        claim "$name: a run" test -s out -a ! -s err
        claim "$name: an export" lockstep export run-$name --out exported-$name
        for folder in run-$name/checkpoints/step-00000001 exported-$name; do
            claim "$folder: transformers finds Lockstep's ids and text" oracle tokenizes $folder whale.txt \
                tokens-$name/train.bin tokens-$name/val.bin
        done
    done
done
finish
