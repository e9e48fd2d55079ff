#!/usr/bin/python3
"""One training step of the exercise in PyTorch: what bench/bench_ddp_step.c times, over gloo.

    bench/peers/ddp_step.py [ranks [steps]]

MLP 64-128-10, 32 samples a rank, Adam, DistributedDataParallel. Timed on rank 0: fetching the samples,
zero_grad, forward, loss, backward (in which DDP reduces), step. Every rank gets its share of the cores.
"""
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

IN, HIDDEN, OUT, BATCH, SAMPLES, WARM_UP = 64, 128, 10, 32, 1000, 200


def train(rank, size, steps, meeting):
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=size)
    torch.manual_seed(0)
    data, label = torch.randn(SAMPLES, IN), torch.randint(0, OUT, (SAMPLES,))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT)))
    loss_of, adam = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = [torch.arange(s * BATCH, (s + 1) * BATCH) % SAMPLES for s in range(SAMPLES)]
    us = []
    for s in range(WARM_UP + steps):
        began = time.perf_counter()
        which = batches[(s * size + rank) % SAMPLES]
        adam.zero_grad()
        loss_of(model(data[which]), label[which]).backward()
        adam.step()
        us.append(1e6 * (time.perf_counter() - began))
    if rank == 0:
        print("%6d %12.2f %12.2f" % (size, statistics.median(us[WARM_UP:]), min(us[WARM_UP:])), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, steps = (int(v) for v in (sys.argv[1:] + ["2", "2000"][len(sys.argv) - 1:])[:2])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    print("# PyTorch %s, gloo: step of MLP %d-%d-%d, %d samples a rank, Adam, DDP" % (torch.__version__, IN, HIDDEN, OUT, BATCH))
    print("%6s %12s %12s" % ("ranks", "median us", "min us"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(ranks, steps, os.path.join(folder, "meeting")), nprocs=ranks)
