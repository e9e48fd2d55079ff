"""What transformers' generate makes of the models in tests/golden/hf, greedily, with its cache.

    python3 tests/golden/generate.py [FILE]     (default: tests/golden/generate.h)

needs torch and transformers. Every sequence is filled up to the 16 tokens of the models. `gap` is by how much the
chosen logit was ahead of the next one, at the closest choice: far more than rounding, or the test would say nothing.
"""
import os
import sys

import torch
from transformers import AutoModelForCausalLM

here = os.path.dirname(os.path.abspath(__file__))
out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "generate.h")
torch.set_num_threads(1)
T, prompts = 16, [[5], [63, 0], [7, 7, 7], [12, 40, 3, 59, 22, 8], [33, 1, 34, 2, 35, 3, 36, 4, 37, 5, 38, 6]]

lines = ["/* generate.h -- made by generate.py; do not edit. */", "#include <stdint.h>", "",
         "/* Of each prompt the first `given` tokens are the prompt, the others what came. */",
         "static const struct golden_text {", "    const char *model;", "    int given;", f"    uint32_t id[{T}];",
         "} golden_text[] = {"]
gap = float("inf")
for name in "gpt2", "llama":
    model = AutoModelForCausalLM.from_pretrained(os.path.join(here, "hf", name), attn_implementation="eager").float().eval()
    for prompt in prompts:
        with torch.no_grad():
            found = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                   do_sample=False, use_cache=True, max_new_tokens=T - len(prompt), eos_token_id=None,
                                   pad_token_id=0, return_dict_in_generate=True, output_logits=True)
        ids = found.sequences[0].tolist()
        assert len(ids) == T and ids[:len(prompt)] == prompt
        for logits in found.logits:
            best = logits[0].topk(2).values
            gap = min(gap, (best[0] - best[1]).item())
        lines.append(f'    {{ "{name}", {len(prompt)}, {{ ' + ", ".join(map(str, ids)) + " } },")
lines += ["};", "", f"static const double golden_gap = {gap:.3g};", ""]
with open(out, "w") as f:
    f.write("\n".join(lines))
