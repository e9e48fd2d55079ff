#!/usr/bin/env python3
"""Writes train_optim.h: what PyTorch makes of whole trainings, for each key of `optim.` and of a language model.

    python3 make-train-optim.py > train_optim.h        (needs torch, transformers, safetensors)

Multi-layer perceptrons: 4, 5, 3 wide, from torch.manual_seed(3), on the first rows of the synthetic data in their
order, 12 steps of 8. Each case has keys far from their defaults. To be sure that a test sees each of them, a case is
made once more with each of its keys left at its default: the weights must then be 100 tolerances away.

Language models: those of hf/, with another epsilon and rotary base, 6 steps of 6 samples of 12 tokens of which one does
not count, AdamW with clipping. Of each parameter's last value the dot product with cos(0), cos(1), cos(2) ... is kept.

Everything is computed in double, so that a difference is Lockstep's rounding.
"""
import math
import os
import sys

import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

STEPS, BATCH, DIMS, TOLERANCE = 12, 8, (4, 5, 3), 1e-5
DEFAULTS = {"optim.lr": "1e-3", "optim.momentum": "0", "optim.betas": "0.9,0.999", "optim.eps": "1e-8",
            "optim.decay": "all", "optim.clip": "0", "optim.schedule": "constant", "optim.warmup": "0",
            "optim.min_lr": "0", "optim.min_lr_ratio": "0", "optim.decay_steps": "0"}
CASES = [
    {"name": "sgd", "lr": "0.3"},
    {"name": "sgd", "lr": "0.3", "momentum": "0.8"},
    {"name": "sgd", "lr": "0.3", "weight_decay": "0.2"},
    {"name": "sgd", "lr": "0.2", "momentum": "0.7", "weight_decay": "0.3", "decay": "matrices"},
    {"name": "sgd", "lr": "0.5", "clip": "0.1"},
    {"name": "adam", "lr": "0.03"},
    {"name": "adam", "lr": "0.03", "betas": "0.5,0.999"},
    {"name": "adam", "lr": "0.03", "betas": "0.9,0.6"},
    {"name": "adam", "lr": "0.05", "eps": "0.05"},
    {"name": "adam", "lr": "0.03", "weight_decay": "0.3"},
    {"name": "adam", "lr": "0.05", "clip": "0.02", "eps": "0.01"},
    {"name": "adamw", "lr": "0.2"},
    {"name": "adamw", "lr": "0.03", "weight_decay": "0"},
    {"name": "adamw", "lr": "0.03", "weight_decay": "0.7"},
    {"name": "adamw", "lr": "0.03", "weight_decay": "0.7", "decay": "matrices"},
    {"name": "adamw", "lr": "0.04", "betas": "0.6,0.7", "eps": "0.02", "weight_decay": "0.5", "clip": "0.1"},
    {"name": "sgd", "lr": "0.4", "schedule": "linear", "warmup": "3", "min_lr": "0.1"},
    {"name": "sgd", "lr": "0.4", "schedule": "linear", "min_lr_ratio": "0.5"},
    {"name": "sgd", "lr": "0.4", "schedule": "cosine", "warmup": "4", "min_lr_ratio": "0.25"},
    {"name": "sgd", "lr": "0.4", "schedule": "cosine", "min_lr": "0.2"},
    {"name": "sgd", "lr": "0.4", "schedule": "wsd", "warmup": "2", "decay_steps": "7", "min_lr_ratio": "0.1"},
    {"name": "sgd", "lr": "0.4", "schedule": "wsd"},
    {"name": "sgd", "lr": "0.4", "warmup": "6"},
]


def rate(k, s, steps):
    """The schedules of src/optim/lr.c; make-optim-groups.py checks the same formulas against torch's own."""
    peak, warmup = float(k["optim.lr"]), int(k["optim.warmup"])
    low = float(k["optim.min_lr"]) or float(k["optim.min_lr_ratio"]) * peak
    if s < warmup:
        return peak * (s + 1) / warmup
    x = (s - warmup) / (steps - warmup)
    if k["optim.schedule"] == "linear":
        return peak + x * (low - peak)
    if k["optim.schedule"] == "cosine":
        return low + 0.5 * (1 + math.cos(math.pi * x)) * (peak - low)
    if k["optim.schedule"] == "wsd":
        decay = int(k["optim.decay_steps"]) or steps // 5
        return peak + max(0, s - (steps - decay)) / decay * (low - peak)
    return peak


def optimizer(k, params):
    name, lr, decay = k["optim.name"], float(k["optim.lr"]), float(k["optim.weight_decay"])
    of_others = decay if k["optim.decay"] == "all" else 0.0
    groups = [{"params": [p for p in params if p.dim() > 1], "weight_decay": decay},
              {"params": [p for p in params if p.dim() < 2], "weight_decay": of_others}]
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=float(k["optim.momentum"]))
    betas = tuple(float(b) for b in k["optim.betas"].split(","))
    adam = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    return adam(groups, lr=lr, betas=betas, eps=float(k["optim.eps"]))


def train(k, params, steps, loss_of):
    o, losses = optimizer(k, params), []
    for s in range(steps):
        o.zero_grad()
        loss = loss_of(s)
        loss.backward()
        if float(k["optim.clip"]) > 0:
            torch.nn.utils.clip_grad_norm_(params, float(k["optim.clip"]))
        for group in o.param_groups:
            group["lr"] = rate(k, s, steps)
        o.step()
        losses.append(loss.item())
    return losses


def keys(case):
    k = dict(DEFAULTS, **{"optim." + name: value for name, value in case.items()})
    k.setdefault("optim.weight_decay", "0.01" if case["name"] == "adamw" else "0")
    return k


def perceptron(case):
    torch.manual_seed(0)
    x, y = torch.randn(1000, DIMS[0]), torch.randint(0, DIMS[-1], (1000,))
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(*DIMS[:2]), torch.nn.ReLU(), torch.nn.Linear(*DIMS[1:])).double()
    rows = lambda s: slice(s * BATCH, (s + 1) * BATCH)
    losses = train(keys(case), list(model.parameters()), STEPS,
                   lambda s: F.cross_entropy(model(x[rows(s)].double()), y[rows(s)]))
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()]).tolist()


def apart(a, b):
    return max(abs(x - y) for x, y in zip(a, b))


LM = {"name": "adamw", "lr": "0.003", "betas": "0.7,0.9", "eps": "1e-5", "weight_decay": "0.3", "decay": "matrices",
      "clip": "0.5"}
LM_STEPS, LM_BATCH, LM_LENGTH, LM_VOCAB, LM_IGNORE = 6, 6, 12, 64, 5
LM_EPS, LM_THETA = 0.01, 100.0


def token(i):
    return (i * i // 7 + 3 * i) % LM_VOCAB


def language_model(kind):
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf", kind)
    config = AutoConfig.from_pretrained(folder)
    if kind == "llama":
        config.rms_norm_eps, config.rope_parameters = LM_EPS, {"rope_theta": LM_THETA, "rope_type": "default"}
    else:
        config.layer_norm_epsilon = LM_EPS
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, attn_implementation="eager").double()
    ids = torch.tensor([token(i) for i in range(LM_STEPS * LM_BATCH * LM_LENGTH + 1)])

    def loss_of(s):
        windows = range(s * LM_BATCH, (s + 1) * LM_BATCH)
        batch = torch.stack([ids[w * LM_LENGTH:(w + 1) * LM_LENGTH + 1] for w in windows])
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).double(), batch[:, 1:].flatten(), ignore_index=LM_IGNORE)

    named = [(name, p) for name, p in model.named_parameters()]
    losses = train(keys(LM), [p for _, p in named], LM_STEPS, loss_of)
    return losses, [(name, (p.detach().flatten() * torch.cos(torch.arange(p.numel(), dtype=torch.double))).sum().item())
                    for name, p in named]


def numbers(values, indent):
    text = ["%.9e" % v for v in values]
    return (",\n" + indent).join(", ".join(text[i:i + 6]) for i in range(0, len(text), 6))


def pairs(case):
    text = ['"optim.%s", "%s"' % pair for pair in case.items()]
    return ",\n        ".join(", ".join(text[i:i + 3]) for i in range(0, len(text), 3))


version = torch.__version__.split("+")[0]
print("/* Generated by make-train-optim.py in this folder with PyTorch %s; see there. */" % version)
print("enum { GOLDEN_STEPS = %d, GOLDEN_BATCH = %d, GOLDEN_WEIGHTS = %d, GOLDEN_KEYS = 7 };" %
      (STEPS, BATCH, sum(a * b + b for a, b in zip(DIMS, DIMS[1:]))))
print("static const double golden_tolerance = %g;" % TOLERANCE)
print("static const struct {")
print("    const char *key[2 * GOLDEN_KEYS + 1]; /* pairs, then NULL */")
print("    double loss[GOLDEN_STEPS];            /* of each step */")
print("    double weight[GOLDEN_WEIGHTS];        /* after the last, in the order of the model */")
print("} golden_mlp[] = {")
for case in CASES:
    losses, weights = perceptron(case)
    for key in case:
        without = {k: v for k, v in case.items() if k != key}
        if key == "name":
            without = dict(case, name={"sgd": "adam", "adam": "adamw", "adamw": "adam"}[case["name"]])
        seen = apart(weights, perceptron(without)[1])
        print("%s: without %s: %.1e" % (case, key, seen), file=sys.stderr)
        same = key == "name" and case.get("weight_decay") == "0"  # adamw without decay is adam
        assert seen > 100 * TOLERANCE or same, (case, key, seen)
    print("    { { %s },\n      { %s },\n      { %s } }," %
          (pairs(case), numbers(losses, "        "), numbers(weights, "        ")))
print("};")
print("enum { GOLDEN_LM_STEPS = %d, GOLDEN_LM_BATCH = %d, GOLDEN_LM_LENGTH = %d, GOLDEN_LM_VOCAB = %d };" %
      (LM_STEPS, LM_BATCH, LM_LENGTH, LM_VOCAB))
print("static const char *const golden_lm_key[] = { %s };" % pairs(LM))
print("static const struct {")
print("    const char *model, *norm_eps, *rope_theta; /* the two as config.json has them */")
print("    double loss[GOLDEN_LM_STEPS];")
print("    struct { const char *name; double sum; } param[40]; /* sums of value times cos(index) after the last */")
print("} golden_lm[] = {")
for kind in ("gpt2", "llama"):
    losses, sums = language_model(kind)
    print('    { "%s", "%g", "%.1f",\n      { %s },\n      {' % (kind, LM_EPS, LM_THETA, numbers(losses, "        ")))
    for name, value in sums:
        print('        { "%s", %.9e },' % (name, value))
    print("      } },")
print("};")
