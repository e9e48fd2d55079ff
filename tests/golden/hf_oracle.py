"""What transformers and safetensors say to files that Lockstep wrote; driven by tests/long_hf.sh.

    hf_oracle.py make FOLDER            models of both kinds: whole, in shards, bf16, f16, without their prefix
    hf_oracle.py same FOLDER FOLDER     both load to the same parameters, to the bit
    hf_oracle.py logits FOLDER GOLDEN   the model's logits are the golden ones to 1e-5
    hf_oracle.py tensors FILE           safetensors opens the file and reads every tensor
    hf_oracle.py generate FILE FOLDER...  each line of FILE continued to 40 tokens, greedily, into FOLDER/made-LINE.txt:
                                        a token is a byte, 256 ends a text
    hf_oracle.py trained FOLDER VAL.BIN T LOSS TEXT   a model's mean loss over the windows of T tokens is LOSS, to the
                                        four digits it has; its tokenizer encodes the text and gives it back
"""
import os
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM)

torch.set_num_threads(1)


def make(out):
    torch.manual_seed(3)
    gpt2 = dict(vocab_size=300, n_positions=40, n_embd=48, n_layer=3, n_head=3, bos_token_id=0, eos_token_id=0)
    llama = dict(vocab_size=300, hidden_size=48, intermediate_size=100, num_hidden_layers=3, num_attention_heads=6,
                 num_key_value_heads=2, max_position_embeddings=40, rope_theta=500000.0)
    models = {
        "gpt2": GPT2LMHeadModel(GPT2Config(**gpt2)),
        "gpt2-untied": GPT2LMHeadModel(GPT2Config(tie_word_embeddings=False, n_inner=100, **gpt2)),
        "gpt2-bf16": GPT2LMHeadModel(GPT2Config(**gpt2)).bfloat16(),
        "llama": LlamaForCausalLM(LlamaConfig(**llama)),
        "llama-tied": LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **llama)),
        "llama-f16": LlamaForCausalLM(LlamaConfig(**llama)).half(),
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


def trained(folder, path, length, loss, text):
    import numpy
    from transformers import PreTrainedTokenizerFast
    length = int(length)
    ids = torch.from_numpy(numpy.fromfile(path, dtype=numpy.uint16)[512:].astype(numpy.int64))
    windows = (len(ids) - 1) // length
    x, y = ids[:windows * length].view(windows, length), ids[1:windows * length + 1].view(windows, length)
    with torch.no_grad():
        logits = load(folder)(input_ids=x, use_cache=False).logits
    got = torch.nn.functional.cross_entropy(logits.double().flatten(0, 1), y.flatten()).item()
    assert abs(got - float(loss)) < 1e-4, (got, loss)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
    whole = open(text, encoding="utf-8", newline="").read()
    again = tokenizer.encode(whole, add_special_tokens=False)
    assert tokenizer.decode(again, clean_up_tokenization_spaces=False) == whole
    assert again[-windows:] == ids[-windows:].tolist(), "the text ends as the validation file does"
    print("loss", got)


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
 "trained": trained}[sys.argv[1]](*sys.argv[2:])
