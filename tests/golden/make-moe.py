"""Writes tests/golden/moe: two small models with experts as transformers makes them, tokens, and what transformers finds when it
trains them: loss and gradient norm of 20 AdamW steps, each over all sequences.

    python3 tests/golden/make-moe.py [FOLDER]      made with transformers 5.24, torch 2.15

AdamW divides by the square root of squares: elements whose gradient is rounding alone would move by lr whichever way they
round. So eps is 1e-5, far above them.
"""
import os
import sys

import numpy
import torch
from transformers import MixtralConfig, MixtralForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM

torch.set_num_threads(1)
torch.manual_seed(7)
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "moe")
T, B, STEPS = 16, 8, 20
base = dict(vocab_size=64, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=16)
models = {
    "mixtral": MixtralForCausalLM(MixtralConfig(intermediate_size=12, num_local_experts=4, num_experts_per_tok=2,
                                                sliding_window=None, rope_theta=500.0, **base)),
    "qwen2_moe": Qwen2MoeForCausalLM(Qwen2MoeConfig(intermediate_size=24, moe_intermediate_size=8, num_experts=6,
                                                    num_experts_per_tok=3, shared_expert_intermediate_size=20, **base)),
}
os.makedirs(out, exist_ok=True)
ids = torch.randint(0, 64, (B * T + 1,))
ids.numpy().astype(numpy.uint16).tofile(os.path.join(out, "tokens.bin"))
x, y = ids[:-1].view(B, T), ids[1:].view(B, T)
for name, model in models.items():
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(os.path.join(out, name))
    os.remove(os.path.join(out, name, "generation_config.json"))
    model.train()
    optim = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.999), eps=1e-5, weight_decay=0.01)
    with open(os.path.join(out, name + ".txt"), "w") as f:
        for step in range(STEPS):
            logits = model(input_ids=x, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            optim.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optim.step()
            f.write("%.9g %.9g\n" % (loss.item(), norm.item()))
