#!/usr/bin/env python3
"""Prints the numbers of fsdp2.h, to 1e-6: losses of PyTorch's FSDP2, five steps of the GPT-2 in fsdp2/.

    python3 make-fsdp2.py            (needs torch, transformers, safetensors; ranks are processes on this machine)

fsdp2/model.safetensors was drawn once: matrices from normal(0, 0.02), norms at 1, biases at 0.
"""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM

STEPS, SEQUENCES, LENGTH, VOCAB = 5, 4, 16, 64
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fsdp2")


def tokens(step, first, n):
    i = (step * SEQUENCES + first + torch.arange(n)).unsqueeze(1) * (LENGTH + 1) + torch.arange(LENGTH + 1)
    return ((i * 2654435761) % 2 ** 32 >> 7) % VOCAB


def rank_main(rank, ranks, port, keep, out):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:%d" % port, rank=rank, world_size=ranks)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    for block in model.transformer.h:
        fully_shard(block, reshard_after_forward=not keep)
    fully_shard(model, reshard_after_forward=not keep)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    losses = []
    for step in range(STEPS):
        n = SEQUENCES // ranks
        ids = tokens(step, rank * n, n)
        optimizer.zero_grad()
        logits = model(ids[:, :-1].contiguous()).logits
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
    if rank == 0:
        out.put(losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for ranks, keep in ((2, False), (2, True), (4, False)):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        out = mp.get_context("spawn").SimpleQueue()
        mp.spawn(rank_main, args=(ranks, port, keep, out), nprocs=ranks)
        print(ranks, "ranks, reshard_after_forward", not keep, " ".join("%.9g" % x for x in out.get()))
