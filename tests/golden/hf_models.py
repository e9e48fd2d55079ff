"""Models of test_hf.c and test_models.c, saved by transformers, with what they compute.

    python3 tests/golden/hf_models.py [FOLDER]     (default: tests/golden/hf)

needs torch, transformers and safetensors. Makes

    gpt2/    config.json, model.safetensors           GPT2LMHeadModel, tied, one file
    llama/   config.json, two shards and the index  LlamaForCausalLM, grouped queries, head of its own
    gpt2.safetensors, llama.safetensors               ids and labels [2, 16]; logits [2, 16, 64], loss, the
             gradient of every parameter ("grad.<name>", laid out as the parameter in the files), and the
             losses of 20 steps of AdamW (lr 1e-3, weight decay 0.01) on that batch

All values are f32, computed by one thread. Every parameter has noise added, so that no bias is 0 and no norm 1.
"""
import os
import shutil
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf")
torch.set_num_threads(1)
B, T, V = 2, 16, 64

gpt2 = GPT2Config(vocab_size=V, n_positions=T, n_embd=32, n_layer=2, n_head=4, embd_pdrop=0.0, attn_pdrop=0.0,
                  resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
llama = LlamaConfig(vocab_size=V, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, max_position_embeddings=T, rms_norm_eps=1e-5, rope_theta=10000.0,
                    tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)


def loss_of(model, ids, labels):
    logits = model(input_ids=ids, use_cache=False).logits
    return logits, F.cross_entropy(logits.reshape(-1, V), labels.reshape(-1))


for name, cls, config, shard in (("gpt2", GPT2LMHeadModel, gpt2, "5GB"), ("llama", LlamaForCausalLM, llama, "40KB")):
    torch.manual_seed(7)
    config._attn_implementation = "eager"
    model = cls(config).float()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn_like(p))
    folder = os.path.join(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=shard, safe_serialization=True)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    ids, labels = torch.randint(0, V, (B, T)), torch.randint(0, V, (B, T))
    logits, loss = loss_of(model, ids, labels)
    loss.backward()
    found = {"ids": ids, "labels": labels, "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    for key, p in model.named_parameters():
        found["grad." + key] = p.grad.clone().contiguous()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for _ in range(20):
        adamw.zero_grad()
        _, loss = loss_of(model, ids, labels)
        loss.backward()
        losses.append(loss.detach().reshape(1))
        adamw.step()
    found["losses"] = torch.cat(losses)
    save_file(found, os.path.join(out, name + ".safetensors"))
