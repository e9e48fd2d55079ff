"""torch_ckpt.py -- saves and loads of FSDP2's model and AdamW's state by torch.distributed.checkpoint, and by torch.save on rank 0:
the lines of bench/gpt_ckpt.h.

`waited,turn,save ms,load ms from the disk,load ms from the cache`; `async,turn,memcpy ms (0),pause ms,until durable ms,steps
meanwhile,usual step ms,steps longer by ms`, of async_save's threads; `single,turn,torch.save ms,torch.load ms from the disk,from the
cache` of a dictionary of as many bytes on rank 0, with an fsync; `bytes,N` of the checkpoint.
"""
import os
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def drop_pages(folder):
    for name in os.listdir(folder):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def flushed(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def measure(model, adamw, one, folder, turns):
    rank = dist.get_rank()
    group = dist.new_group(backend='gloo')  # a save's messages must not meet those of the steps

    def state():
        weights, optim = get_state_dict(model, adamw)
        return {'model': weights, 'optimizer': optim}

    def together(what):
        dist.barrier()
        began = time.perf_counter()
        what()
        dist.barrier()
        return 1e3 * (time.perf_counter() - began)

    def load(path):
        into = state()
        dcp.load(into, checkpoint_id=path, process_group=group)
        set_state_dict(model, adamw, model_state_dict=into['model'], optim_state_dict=into['optimizer'])

    def cold(path):  # twice, and the second counts: a virtual machine may have to be given the memory for the first
        for _ in range(2):
            if rank == 0:
                drop_pages(path)
            ms = together(lambda: load(path))
        return ms

    def say(text):
        if rank == 0:
            print(text, flush=True)

    for turn in range(1, turns + 1):
        path = '%s/waited-%d' % (folder, turn)
        save_ms = together(lambda: dcp.save(state(), checkpoint_id=path, process_group=group))  # its writer calls fsync
        cold_ms = cold(path)
        say('waited,%d,%.1f,%.1f,%.1f' % (turn, save_ms, cold_ms, together(lambda: load(path))))
        nbytes = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))
        say('bytes,%d' % nbytes)
        usual, slower, steps = statistics.median(one() for _ in range(5)), 0, 0
        path = '%s/async-%d' % (folder, turn)
        dist.barrier()
        began = time.perf_counter()
        future = dcp.async_save(state(), checkpoint_id=path, process_group=group)
        future = getattr(future, 'upload_completion', future)
        times = torch.tensor([1e3 * (time.perf_counter() - began)], dtype=torch.float64)
        dist.all_reduce(times, dist.ReduceOp.MAX)
        while True:
            busy = torch.tensor(float(not future.done()))
            dist.all_reduce(busy, dist.ReduceOp.MAX)
            if not busy.item():
                break
            slower += one() - usual
            steps += 1
        future.result()
        say('async,%d,0,%.1f,%.1f,%d,%.1f,%.1f' % (turn, times.item(), 1e3 * (time.perf_counter() - began), steps, usual, slower))
        dist.barrier()
        if rank == 0:
            single(turn, folder, nbytes)
            shutil.rmtree(path)
            shutil.rmtree('%s/waited-%d' % (folder, turn))
        dist.barrier()


def single(turn, folder, nbytes):
    path, whole = '%s/single/all.pt' % folder, {str(i): torch.ones(1 << 20) for i in range(nbytes >> 22)}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    began = time.perf_counter()
    torch.save(whole, path)
    flushed(path)
    save_ms = 1e3 * (time.perf_counter() - began)
    loads = []
    for drop in (True, True, False):
        if drop:
            drop_pages(os.path.dirname(path))
        began = time.perf_counter()
        torch.load(path)
        loads.append(1e3 * (time.perf_counter() - began))
    print('single,%d,%.1f,%.1f,%.1f' % (turn, save_ms, *loads[1:]), flush=True)
    os.unlink(path)
