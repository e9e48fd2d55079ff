#!/usr/bin/python3
"""One training step of the exercise in PyTorch: what bench/bench_ddp_step.c times, over gloo.

    bench/peers/ddp_step.py [--adam fused|foreach] [--view] [--static] [ranks [steps]]

MLP 64-128-10, 32 samples a rank, Adam, DistributedDataParallel. Timed on rank 0: fetching the samples,
zero_grad, forward, loss, backward (in which DDP reduces), step. Every rank gets its share of the cores. --view is
gradient_as_bucket_view, --static static_graph: what may make it faster, and what bench/train/compare --tune tries.
"""
import argparse
import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from pin import pin  # noqa: E402

CORES = len(os.sched_getaffinity(0))
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

IN, HIDDEN, OUT, BATCH, SAMPLES, WARM_UP = 64, 128, 10, 32, 1000, 200


def train(rank, o, meeting):
    size, steps = o.ranks, o.steps
    threads = max(1, CORES // size)
    pin(rank, threads)
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=size)
    torch.manual_seed(0)
    data, label = torch.randn(SAMPLES, IN), torch.randint(0, OUT, (SAMPLES,))
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(IN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, OUT)),
                                                gradient_as_bucket_view=o.view, static_graph=o.static)
    loss_of, adam = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=1e-3, **({o.adam: True} if o.adam else {}))
    batches = [torch.arange(s * BATCH, (s + 1) * BATCH) % SAMPLES for s in range(SAMPLES)]
    us = []
    for s in range(WARM_UP + steps):
        began = time.perf_counter()
        which = batches[(s * size + rank) % SAMPLES]
        adam.zero_grad(**({'set_to_none': False} if o.view else {}))
        loss_of(model(data[which]), label[which]).backward()
        adam.step()
        us.append(1e6 * (time.perf_counter() - began))
    if rank == 0:
        print("%6d %12.2f %12.2f" % (size, statistics.median(us[WARM_UP:]), min(us[WARM_UP:])), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--adam", choices=["fused", "foreach"])
    a.add_argument("--view", action="store_true")
    a.add_argument("--static", action="store_true")
    a.add_argument("ranks", nargs="?", type=int, default=2)
    a.add_argument("steps", nargs="?", type=int, default=2000)
    o = a.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    print("# PyTorch %s, gloo: step of MLP %d-%d-%d, %d samples a rank, Adam, DDP" % (torch.__version__, IN, HIDDEN, OUT, BATCH))
    print("%6s %12s %12s" % ("ranks", "median us", "min us"), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(train, args=(o, os.path.join(folder, "meeting")), nprocs=o.ranks)
