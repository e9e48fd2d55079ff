"""Random models of Hugging Face's, trained by Lockstep and by transformers + torch; run by tests/long_hf_random.sh.

    hf_random.py LOCKSTEP [NAME...]     (NAME: gpt2-0 .. gpt2-39, llama-0 .. llama-39; default: all of them)

transformers makes each model with random sizes, heads, key and value heads, epsilon, rotary base, tying and vocabulary
and saves it. `lockstep train --model.load DIR`, with no other key of the model, makes 6 steps of AdamW with a random
number of ranks, micro-batches, decay, betas, epsilon and clipping on tokens written here; torch makes the same steps on
one thread. The loss of each step is the same to 2e-4, and each weight to 3e-3 of the largest of its tensor.

The name is the seed: a failure is repeated by its name alone. Dropouts are 0 in these configurations: two generators
draw different masks.
"""
import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

STEPS, EACH = 6, 40
LOSS, WEIGHT = 2e-4, 3e-3
torch.set_num_threads(1)


def sizes(r, kind):
    heads = r.randint(1, 6)
    head = r.choice([2, 4, 6, 8, 10, 16])
    layers, vocab, positions = r.randint(1, 3), r.randint(11, 300), r.randint(6, 40)
    eps, tied = 10 ** r.uniform(-6, -4), r.random() < 0.5
    if kind == "gpt2":
        return GPT2Config(vocab_size=vocab, n_positions=positions, n_embd=heads * head, n_layer=layers, n_head=heads,
                          n_inner=r.choice([None, r.randint(5, 150)]), layer_norm_epsilon=eps, tie_word_embeddings=tied,
                          embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    groups = r.choice([n for n in range(1, heads + 1) if heads % n == 0])
    return LlamaConfig(vocab_size=vocab, hidden_size=heads * head, intermediate_size=r.randint(5, 150),
                       num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=groups,
                       max_position_embeddings=positions, rms_norm_eps=eps, rope_theta=10 ** r.uniform(2, 6),
                       tie_word_embeddings=tied, bos_token_id=0, eos_token_id=1)


def make(r, config, folder):
    torch.manual_seed(r.randrange(1 << 30))
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float()
    spread = r.choice([0.003, 0.02, 0.1])  # with small values an epsilon of 1e-4 outweighs the variance
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.normal_(0, spread)
            else:
                p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(folder, max_shard_size=r.choice(["5GB", "20KB"]))


def write_tokens(r, path, vocab, n):
    ids = [r.randrange(vocab) for _ in range(n)]
    with open(path, "wb") as f:
        f.write(struct.pack("<256i", 20240520, 1, n, *[0] * 253) + struct.pack(f"<{n}H", *ids))
    return torch.tensor(ids)


def training(r, positions, vocab):
    ranks, micro, parts = r.randint(1, 4), r.randint(1, 3), r.randint(1, 3)
    return {
        "ranks": ranks, "micro": micro, "batch": ranks * micro * parts, "length": r.randint(min(4, positions), positions),
        "ignore": r.choice([-1, -1, r.randrange(vocab)]), "lr": 10 ** r.uniform(-4, -2.5),
        "betas": (r.uniform(0.5, 0.95), r.uniform(0.8, 0.999)), "eps": 10 ** r.uniform(-8, -4),
        "weight_decay": r.choice([0.0, r.uniform(0.01, 2.0)]), "decay": r.choice(["all", "matrices"]),
        "clip": r.choice([0.0, r.uniform(0.05, 3.0)]), "stage": r.choice([0, 0, 1]),
        "recompute": r.choice(["none", "selective", "full"]), "transport": r.choice(["shm", "shm", "tcp"]),
        "cap": r.choice(["1KiB", "16KiB", "25MiB"]), "overlap": r.choice(["true", "true", "false"]),
    }


def command(lockstep, folder, t, out):
    return [lockstep, "train", "--model.load", folder, "--data.path", os.path.join(out, "train.bin"),
            "--data.shuffle", "false", "--data.ignore_token", str(t["ignore"]), "--train.steps", str(STEPS),
            "--train.seq_len", str(t["length"]), "--train.global_batch", str(t["batch"]),
            "--train.micro_batch", str(t["micro"]), "--train.recompute", t["recompute"], "--optim.name", "adamw",
            "--optim.lr", repr(t["lr"]), "--optim.betas", "%r,%r" % t["betas"], "--optim.eps", repr(t["eps"]),
            "--optim.weight_decay", repr(t["weight_decay"]), "--optim.decay", t["decay"], "--optim.clip", repr(t["clip"]),
            "--zero.stage", str(t["stage"]), "--ddp.bucket_cap", t["cap"], "--ddp.first_bucket", t["cap"],
            "--ddp.overlap", t["overlap"], "--comm.transport", t["transport"], "--log.tensorboard", "false",
            "--nproc-per-node", str(t["ranks"]), "--run.dir", os.path.join(out, "run")]


def reference(folder, ids, t):
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").float().train()
    named = list(model.named_parameters())
    matrices = [p for _, p in named if p.dim() > 1]
    others = [p for _, p in named if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": t["weight_decay"]},
              {"params": others, "weight_decay": t["weight_decay"] if t["decay"] == "all" else 0.0}]
    adamw = torch.optim.AdamW(groups, lr=t["lr"], betas=t["betas"], eps=t["eps"])
    losses, n, length = [], t["batch"], t["length"]
    for step in range(STEPS):
        rows = [ids[w * length:w * length + length + 1] for w in range(step * n, (step + 1) * n)]
        batch = torch.stack(rows)
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        ignore = t["ignore"] if t["ignore"] >= 0 else -100
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), ignore_index=ignore)
        adamw.zero_grad()
        loss.backward()
        if t["clip"] > 0:
            torch.nn.utils.clip_grad_norm_([p for _, p in named], t["clip"])
        adamw.step()
        losses.append(loss.item())
    return model, losses


def compared(kind, model, found):
    """The largest difference of a weight, as a share of its tensor's largest value, and whose it is."""
    worst = (0.0, "")
    want, got = model.state_dict(), found.state_dict()
    assert want.keys() == got.keys(), sorted(want.keys() ^ got.keys())
    for name, w in want.items():
        difference, scale = (got[name] - w).abs(), w.abs().max().item()
        if kind == "gpt2" and name.endswith("c_attn.bias"):
            # softmax does not depend on the keys' bias: its gradient is rounding alone, which Adam makes as large as any
            third = difference.numel() // 3
            difference[third:2 * third] = 0
        worst = max(worst, (difference.max().item() / scale, name))
    return worst


def attempt(lockstep, name, out):
    kind, r = name.split("-")[0], random.Random(name)
    config, folder = sizes(r, kind), os.path.join(out, "model")
    make(r, config, folder)
    t = training(r, config.max_position_embeddings, config.vocab_size)
    ids = write_tokens(r, os.path.join(out, "train.bin"), config.vocab_size, STEPS * t["batch"] * t["length"] + 1)
    run = command(lockstep, folder, t, out)
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return "exit status %d: %s" % (done.returncode, done.stderr.strip()[-600:]), run
    model, losses = reference(folder, ids, t)
    with open(os.path.join(out, "run", "metrics.jsonl")) as f:
        found = [json.loads(line)["loss_metrics/global_avg_loss"] for line in f]
    if len(found) != STEPS or not all(math.isfinite(x) and abs(x - y) <= LOSS for x, y in zip(found, losses)):
        return "losses %s, torch has %s" % (found, losses), run
    saved = os.path.join(out, "run", "checkpoints", "step-%08d" % STEPS)
    worst, which = compared(kind, model, AutoModelForCausalLM.from_pretrained(saved).float())
    if not worst <= WEIGHT:
        return "%s is off by %.2g of its largest value" % (which, worst), run
    apart = max(abs(x - y) for x, y in zip(found, losses))
    print("%s: loss within %.1e, weights within %.1e (%s)" % (name, apart, worst, which), flush=True)
    return None, run


def main():
    lockstep, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    failed = 0
    names = names or ["%s-%d" % (kind, i) for kind in ("gpt2", "llama") for i in range(EACH)]
    for name in names:
        with tempfile.TemporaryDirectory(prefix="lockstep-hf-") as out:
            wrong, run = attempt(lockstep, name, out)
            if wrong:
                failed += 1
                with open(os.path.join(out, "model", "config.json")) as f:
                    config = " ".join(f.read().split())
                print("FAILED: %s: %s\n  config.json: %s\n  command: %s\n  again: %s %s %s %s" %
                      (name, wrong, config, " ".join(run), sys.executable, os.path.abspath(__file__), lockstep, name),
                      flush=True)
    print("%d passed, %d failed" % (len(names) - failed, failed))
    sys.exit(failed > 0)


main()
