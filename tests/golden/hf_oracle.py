"""What transformers and safetensors say to files that Lockstep wrote; driven by tests/long_hf.sh.

    hf_oracle.py make FOLDER            models of each kind: whole, in shards, bf16, f16, without their prefix
    hf_oracle.py same FOLDER FOLDER     both load to the same parameters, to the bit
    hf_oracle.py logits FOLDER GOLDEN   the model's logits are the golden ones to 1e-5
    hf_oracle.py tensors FILE           safetensors opens the file and reads every tensor
    hf_oracle.py generate FILE FOLDER...  each line of FILE continued to 40 tokens, greedily, into FOLDER/made-LINE.txt:
                                        a token is a byte, 256 ends a text
    hf_oracle.py trained FOLDER VAL.BIN T LOSS    a model's mean loss over the windows of T tokens is LOSS, to the four
                                        digits it has
    hf_oracle.py vocabulary MERGES.GZ FOLDER    GPT-2's vocab.bpe and encoder.json of its merges
    hf_oracle.py tokenizes FOLDER TEXT TRAIN.BIN VAL.BIN    AutoTokenizer gives the ids that the token files have, nothing
                                        around them, and the text of them; the model continues it
"""
import gzip
import json
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM)

torch.set_num_threads(1)


def make(out):
    torch.manual_seed(3)
    gpt2 = dict(vocab_size=300, n_positions=40, n_embd=48, n_layer=3, n_head=3, bos_token_id=0, eos_token_id=0)
    llama = dict(vocab_size=300, hidden_size=48, intermediate_size=100, num_hidden_layers=3, num_attention_heads=6,
                 num_key_value_heads=2, max_position_embeddings=40, rope_theta=500000.0)
    moe = dict(llama, num_hidden_layers=2, rope_theta=10000.0)
    models = {
        "gpt2": GPT2LMHeadModel(GPT2Config(**gpt2)),
        "gpt2-untied": GPT2LMHeadModel(GPT2Config(tie_word_embeddings=False, n_inner=100, **gpt2)),
        "gpt2-bf16": GPT2LMHeadModel(GPT2Config(**gpt2)).bfloat16(),
        "llama": LlamaForCausalLM(LlamaConfig(**llama)),
        "llama-tied": LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama)),
        "llama-f16": LlamaForCausalLM(LlamaConfig(**llama)).half(),
        "mixtral": MixtralForCausalLM(MixtralConfig(num_local_experts=4, num_experts_per_tok=2, sliding_window=None, **moe)),
        "mixtral-bf16": MixtralForCausalLM(MixtralConfig(num_local_experts=4, num_experts_per_tok=1, sliding_window=None,
                                                         **moe)).bfloat16(),
        "qwen2-moe": Qwen2MoeForCausalLM(Qwen2MoeConfig(moe_intermediate_size=40, num_experts=6, num_experts_per_tok=3,
                                                        shared_expert_intermediate_size=56, **moe)),
    }
    for name, model in models.items():
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.05 * torch.randn_like(p))
        model.save_pretrained(os.path.join(out, name), max_shard_size="100KB" if name.startswith("llama") else "5GB")
    models["gpt2"].transformer.save_pretrained(os.path.join(out, "gpt2-bare"))


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager").eval()


def same(a, b):
    x, y = load(a).state_dict(), load(b).state_dict()
    assert x.keys() == y.keys(), (sorted(x), sorted(y))
    for name in x:
        assert torch.equal(x[name].float(), y[name].float()), name
    print(len(x), "tensors are the same")


def logits(folder, golden):
    want = load_file(golden)
    with torch.no_grad():
        got = load(folder)(input_ids=want["ids"], use_cache=False).logits
    worst = (got - want["logits"]).abs().max().item()
    assert worst <= 1e-5, worst
    print("logits differ by at most", worst)


def ids_of(path):
    import numpy
    return numpy.fromfile(path, dtype=numpy.uint16)[512:].astype(numpy.int64)


def trained(folder, path, length, loss, within="1e-4"):
    length = int(length)
    ids = torch.from_numpy(ids_of(path))
    windows = (len(ids) - 1) // length
    x, y = ids[:windows * length].view(windows, length), ids[1:windows * length + 1].view(windows, length)
    with torch.no_grad():
        logits = load(folder)(input_ids=x, use_cache=False).logits
    got = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), y.flatten()).item()
    assert abs(got - float(loss)) < float(within), (got, loss)
    print("loss", got)


def bits(folder):
    model = dict(load(folder).named_parameters())
    with safe_open(os.path.join(folder, "model.safetensors"), framework="pt") as f:
        saved = {name: f.get_tensor(name) for name in f.keys()}
    assert set(saved) == set(model), set(saved) ^ set(model)
    for name, t in saved.items():
        assert torch.equal(t.view(torch.int32), model[name].detach().view(torch.int32)), name
    print(len(saved), "tensors")


def vocabulary(merges, out):
    text = gzip.open(merges, "rt", encoding="utf-8").read()
    lines = [line for line in text.split("\n") if line and not line.startswith("#version")]
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = [chr(b) for b in plain] + [chr(256 + i) for i in range(256 - len(plain))]
    tokens = letters + [line.replace(" ", "") for line in lines] + ["<|endoftext|>"]
    os.makedirs(out)
    with open(os.path.join(out, "vocab.bpe"), "w", encoding="utf-8") as f:
        f.write(text)
    with open(os.path.join(out, "encoder.json"), "w", encoding="utf-8") as f:
        json.dump({token: i for i, token in enumerate(tokens)}, f)


def tokenizes(folder, text, *files):
    tokenizer, model = AutoTokenizer.from_pretrained(folder), load(folder)
    whole = open(text, encoding="utf-8", newline="").read()
    end = tokenizer.eos_token_id
    want = [i for path in files for i in ids_of(path).tolist() if i != end]
    got = tokenizer(whole)["input_ids"]
    assert got == want, (len(got), len(want), got[:20], want[:20])
    assert tokenizer.decode(got) == whole
    assert max(got) < model.config.vocab_size == len(tokenizer) == end + 1, (max(got), len(tokenizer), end)
    assert (end, end) == (model.generation_config.eos_token_id, model.generation_config.bos_token_id)
    assert tokenizer.model_max_length == model.config.max_position_embeddings
    hard = [line for line in ("  two  blanks ,  and . dots 's n't !", "a\n\n b", " ", "") if set(line) <= set(whole)]
    for line in hard:
        assert tokenizer.decode(tokenizer(line)["input_ids"]) == line, line
    prompt = tokenizer(whole[:12], return_tensors="pt")
    made = model.generate(**prompt, max_new_tokens=8, do_sample=True)
    assert made.shape[1] <= prompt["input_ids"].shape[1] + 8 and made.max() < len(tokenizer)
    assert tokenizer.decode(made[0]).startswith(whole[:12])
    print(len(got), "ids are the same;", len(hard), "hard lines")


def tensors(path):
    with safe_open(path, framework="pt") as f:
        assert f.metadata()["format"] == "pt"
        print(len([f.get_tensor(name) for name in f.keys()]), "tensors")


def generate(prompts, *folders):
    with open(prompts, "rb") as f:
        lines = f.read().splitlines()
    for folder in folders:
        model = load(folder).float()
        for number, line in enumerate(lines, 1):
            ids = torch.tensor([list(line)])
            with torch.no_grad():
                found = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=0,
                                       max_new_tokens=40 - len(line), eos_token_id=None,
                                       suppress_tokens=list(range(257, model.config.vocab_size)))
            made = b"".join(b"<|endoftext|>" if i == 256 else bytes([i]) for i in found[0].tolist())
            with open(os.path.join(folder, f"made-{number}.txt"), "w", newline="") as f:
                f.write(made.decode("utf-8", "replace") + "\n")


{"make": make, "same": same, "logits": logits, "tensors": tensors, "generate": generate,
 "trained": trained, "bits": bits, "vocabulary": vocabulary, "tokenizes": tokenizes}[sys.argv[1]](*sys.argv[2:])
