#!/usr/bin/env python3
"""peer_torch.py -- torch.distributed's collectives on gloo, measured as method.h says, with its options.

-R RANK -D FOLDER -I INTERFACE: one process per rank, each started by hand; they meet in FOLDER. RANK env: $RANK
"""
import argparse
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from pin import pin  # noqa: E402

SHARED = ('reduce_scatter', 'all_gather', 'all_to_all')


def size(text):
    unit = {'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}.get(text[-1])
    return int(float(text[:-1]) * unit) if unit else int(text)


def most(value):
    t = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    dist.barrier()
    return t.item()


class Collective:
    """One collective on n floats."""

    def __init__(self, o, rank, n):
        self.o, self.rank, self.n, self.share = o, rank, n, n // o.n
        size_in = self.share if o.c == 'all_gather' else n
        size_out = self.share if o.c == 'reduce_scatter' else n
        self.source = torch.arange(size_in, dtype=torch.float32).remainder_(7).add_(rank + 1)
        self.out = torch.zeros(size_out)
        self.inplace = o.c in ('all_reduce', 'broadcast')
        self.given = self.out if self.inplace else torch.empty(size_in)
        self.parts = list(self.out.chunk(o.n)) if o.c == 'all_gather' else None
        self.cut = list(self.given.chunk(o.n)) if o.c == 'reduce_scatter' else None

    def rewrite(self):
        self.given.copy_(self.source)

    def run(self):
        c = self.o.c
        if c == 'all_reduce' and self.o.w == 'bf16':  # what DDP's bf16_compress_hook does
            narrow = self.out.to(torch.bfloat16)
            dist.all_reduce(narrow)
            self.out.copy_(narrow)
        elif c == 'all_reduce':
            dist.all_reduce(self.out)
        elif c == 'broadcast':
            dist.broadcast(self.out, 0)
        elif c == 'all_gather':
            dist.all_gather(self.parts, self.given)
        elif c == 'reduce_scatter':
            dist.reduce_scatter(self.out, self.cut)
        elif c == 'all_to_all':
            dist.all_to_all_single(self.out, self.given)
        elif c == 'sendrecv':
            if self.rank == 0:
                dist.send(self.given, 1)
            dist.recv(self.out, 1 - self.rank)
            if self.rank == 1:
                dist.send(self.given, 0)
        else:
            dist.barrier()

    def expected(self):
        n, r = self.o.n, self.rank
        at = torch.arange(self.n, dtype=torch.float32)
        low = at.remainder(7)
        if self.o.c == 'all_reduce':
            return low * n + n * (n + 1) // 2
        if self.o.c == 'reduce_scatter':
            return low[r * self.share:(r + 1) * self.share] * n + n * (n + 1) // 2
        if self.o.c == 'broadcast':
            return low + 1
        if self.o.c == 'sendrecv':
            return low + (1 - r) + 1
        block = low[:self.share] if self.o.c == 'all_gather' else low[r * self.share:(r + 1) * self.share]
        return torch.cat([block + q + 1 for q in range(n)])


def trial(x, operations):
    ways = 2 if x.o.c == 'sendrecv' else 1
    each = []
    most(0)
    for _ in range(operations):
        x.rewrite()
        t = time.perf_counter()
        x.run()
        each.append(time.perf_counter() - t)
        x.out[::16].sum()
    return most(sum(each) / operations / ways), most(statistics.median(each) / ways)


def worker(rank, o, store):
    pin(rank, 1)
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=o.n)
    if rank == 0:
        print('program,collective,place,memory,ranks,bytes,iterations,min_us,median_us,single_us,algbw_GBps,busbw_GBps,wrong')
    factor = 2 * (o.n - 1) / o.n if o.c == 'all_reduce' else (o.n - 1) / o.n if o.c in SHARED else 1
    nbytes = o.b
    while nbytes <= o.e:
        n = nbytes // 4
        if o.c in SHARED:
            n = n // o.n * o.n
        x = Collective(o, rank, n)
        trial(x, 1)
        once = trial(x, 2)[1]
        operations = max(2, min(10000, int(o.t / once)))
        rows = [trial(x, operations) for _ in range(o.r)]
        x.rewrite()
        x.run()
        wrong = 0 if o.c == 'barrier' else most(float((x.out != x.expected()).sum()))
        if rank == 0:
            us = statistics.median(m for m, _ in rows) * 1e6
            print('%s,%s,%s,private,%d,%d,%d,%.4f,%.4f,%.4f,%.5g,%.5g,%d' % (
                o.L, o.c, 'in' if x.inplace else 'out', o.n, 4 * n, operations, min(m for m, _ in rows) * 1e6, us,
                statistics.median(s for _, s in rows) * 1e6, 4 * n / us * 1e-3, 4 * n / us * 1e-3 * factor, wrong), flush=True)
        nbytes *= o.f
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('-n', type=int, default=2)
    p.add_argument('-c', default='all_reduce')
    p.add_argument('-b', type=size, default=8)
    p.add_argument('-e', type=size, default=8)
    p.add_argument('-f', type=int, default=16)
    p.add_argument('-p', help='in or out: torch decides')
    p.add_argument('-t', type=float, default=0.04)
    p.add_argument('-r', type=int, default=3)
    p.add_argument('-L', default='torch')
    p.add_argument('-w', choices=['f32', 'bf16'], default='f32')
    p.add_argument('-R')
    p.add_argument('-D')
    p.add_argument('-I', default='lo')
    a = p.parse_args()
    os.environ.setdefault('GLOO_SOCKET_IFNAME', a.I)
    if a.R:
        worker(int(os.environ['RANK'] if a.R == 'env' else a.R), a, os.path.join(a.D, 'store'))
        sys.exit(0)
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(a, os.path.join(folder, 'store')), nprocs=a.n)
