#!/usr/bin/python3
"""Steps of training GPT-2 in PyTorch on CPUs: what bench/bench_gpt.c does, with the same sizes, token ids and output.

    bench/train/torch_gpt.py --batch 4 --tokens 64 --threads 2           (GPT-2 124M)
    bench/train/torch_gpt.py --ranks 2 --batch 2 --sync alternate        (DistributedDataParallel over gloo)
    bench/train/torch_gpt.py --ranks 2 --batch 2 --shard zero1           (ZeroRedundancyOptimizer; fsdp: fully_shard)

A step: zero_grad, forward (autocast where --dtype is bf16), the loss's value, backward, clip_grad_norm_, AdamW.
What a version of PyTorch can do faster is asked for by --attention, --adamw and --compile; the environment it
runs in (malloc, OpenMP) is the caller's: bench/train/compare has the settings.
"""
import argparse
import contextlib
import inspect
import json
import os
import resource
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
from pin import pin  # noqa: E402


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (('n_layer', 12), ('n_head', 12), ('d_model', 768), ('vocab', 50257), ('seq_len', 1024),
                        ('batch', 4), ('tokens', 64), ('ranks', 1), ('threads', 1), ('steps', 5)):
        a.add_argument('--' + name, type=int, default=value)
    a.add_argument('--clip', type=float, default=1.0)
    a.add_argument('--lr', type=float, default=1e-4)
    a.add_argument('--dtype', choices=['f32', 'bf16'], default='f32')
    a.add_argument('--sync', choices=['always', 'alternate'], default='always')
    a.add_argument('--attention', choices=['plain', 'fused'], default='plain', help='fused: scaled_dot_product_attention')
    a.add_argument('--adamw', choices=['plain', 'foreach', 'fused'], default='plain')
    a.add_argument('--compile', action='store_true')
    a.add_argument('--shard', choices=['none', 'zero1', 'fsdp', 'fsdp-keep'], default='none',
                   help='zero1: ZeroRedundancyOptimizer; fsdp: fully_shard of every block; keep: parameters stay whole after forward')
    a.add_argument('--zero', type=int, default=0, help='what bench_gpt calls it; --shard says how')
    a.add_argument('--ckpt', metavar='FOLDER', help='after the steps, measure checkpoints there (torch_ckpt.py); with --shard fsdp')
    a.add_argument('--turns', type=int, default=3, help='of saves and loads, with --ckpt')
    a.add_argument('--weights', metavar='FILE', help='first weights: what bench_gpt --save wrote')
    return a.parse_args()


o = arguments()
os.environ['OMP_NUM_THREADS'] = str(o.threads)  # before torch is loaded
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(o.d_model, 3 * o.d_model), nn.Linear(o.d_model, o.d_model)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, o.n_head, C // o.n_head).transpose(1, 2) for t in self.c_attn(x).split(C, dim=2))
        if o.attention == 'fused':
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q * (C // o.n_head) ** -0.5) @ k.transpose(-2, -1) + mask
            y = torch.softmax(scores, dim=-1).to(v.dtype) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(o.d_model, 4 * o.d_model), nn.Linear(4 * o.d_model, o.d_model)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate='tanh'))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(o.d_model), Attention(), nn.LayerNorm(o.d_model), Mlp()

    def forward(self, x, mask):
        x = x + self.attn(self.ln_1(x), mask)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Parameters are named as Lockstep names them, which is as Hugging Face does."""

    def __init__(self):
        super().__init__()
        self.transformer = nn.ModuleDict({'wte': nn.Embedding(o.vocab, o.d_model), 'wpe': nn.Embedding(o.seq_len, o.d_model),
                                          'h': nn.ModuleList(Block() for _ in range(o.n_layer)), 'ln_f': nn.LayerNorm(o.d_model)})
        mask = torch.full((o.tokens, o.tokens), float('-inf')).triu(1)
        self.register_buffer('mask', mask, persistent=False)
        self.register_buffer('position', torch.arange(o.tokens), persistent=False)

    def forward(self, ids, labels):
        t = self.transformer
        x = t['wte'](ids) + t['wpe'](self.position)
        for block in t['h']:
            x = block(x, self.mask)
        logits = F.linear(t['ln_f'](x), t['wte'].weight)
        return F.cross_entropy(logits.view(-1, o.vocab).float(), labels.view(-1))


def load(model, path):
    """A safetensors file of f32, in which GPT-2's matrices are [in, out], as Hugging Face's are."""
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = bytearray(f.read())
    state = {}
    for name, t in header.items():
        if name != '__metadata__':
            begin, end = t['data_offsets']
            state[name] = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin).view(t['shape'])
            if name.endswith(('c_attn.weight', 'c_proj.weight', 'c_fc.weight')):
                state[name] = state[name].t()
    model.load_state_dict(state)


def batch(step, rank):
    """The ids of bench_gpt.c: token i of the run follows from i alone."""
    first = (step * o.ranks + rank) * o.batch
    i = (first + torch.arange(o.batch)).unsqueeze(1) * (o.tokens + 1) + torch.arange(o.tokens + 1)
    ids = ((i * 2654435761) % 2 ** 32 >> 7) % o.vocab
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def fully_sharded(model):
    """FSDP2 of every block and of the rest; in bf16 by its own policy, instead of autocast."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    how = dict(mesh=init_device_mesh('cpu', (o.ranks,)), reshard_after_forward=o.shard == 'fsdp')
    if o.dtype == 'bf16':
        how['mp_policy'] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.transformer['h']:
        fully_shard(block, **how)
    return fully_shard(model, **how)


def optimizer(model):
    how = {'plain': {}, 'foreach': {'foreach': True}, 'fused': {'fused': True}}[o.adamw]
    if o.shard == 'zero1':
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=o.lr, **how)
    return torch.optim.AdamW(model.parameters(), lr=o.lr, **how)


def pss():
    """MiB of this process, where pages that several map count by a share; 0: the system does not say."""
    try:
        with open('/proc/self/smaps_rollup') as f:
            return sum(float(line.split()[1]) for line in f if line.startswith('Pss:')) / 1024
    except OSError:
        return 0.0


def train(rank, meeting):
    pin(rank, o.threads)
    torch.set_num_threads(o.threads)
    if o.ranks > 1:
        dist.init_process_group('gloo', init_method='file://' + meeting, rank=rank, world_size=o.ranks)
    torch.manual_seed(0)
    model = GPT2()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    if o.weights:
        load(model, o.weights)
    fsdp = o.shard.startswith('fsdp')
    if fsdp:
        model = fully_sharded(model)
    elif o.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(model) if o.compile else model
    adamw = optimizer(model)
    clip = {'foreach': True} if 'foreach' in inspect.signature(nn.utils.clip_grad_norm_).parameters else {}
    if rank == 0:
        print('# PyTorch %s' % torch.__version__)
        print('step,sync,ms,loss', flush=True)

    def one(step, sync):
        x, y = batch(step, rank)
        if o.ranks > 1:
            dist.barrier()
        began = time.perf_counter()
        adamw.zero_grad(set_to_none=o.ranks == 1 or fsdp)
        with contextlib.nullcontext() if sync or o.ranks == 1 else model.no_sync():
            with torch.autocast('cpu', torch.bfloat16, enabled=o.dtype == 'bf16' and not fsdp):
                loss = run(x, y)
            loss.backward()
        value = loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), o.clip, **clip)
        adamw.step()
        ms = torch.tensor(1e3 * (time.perf_counter() - began))
        if o.ranks > 1:
            dist.all_reduce(ms, dist.ReduceOp.MAX)  # of the slowest rank, as bench_gpt.c has it
        return ms.item(), value

    for step in range(o.steps):
        sync = o.sync == 'always' or step % 2 == 0
        ms, value = one(step, sync)
        if rank == 0:
            print('%d,%d,%.3f,%.7g' % (step + 1, sync, ms, value), flush=True)
    if o.ckpt:
        import torch_ckpt
        torch_ckpt.measure(model, adamw, lambda: one(o.steps, True)[0], o.ckpt, o.turns)
    memory = torch.tensor(pss(), dtype=torch.float64)
    if o.ranks > 1:
        dist.all_reduce(memory)
    if rank == 0:
        print('pss_mib,%.1f' % memory, flush=True)
        print('max_rss_mib,%.1f' % (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), flush=True)
    if o.ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == '__main__':
    os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')
    if o.ranks == 1:
        train(0, None)
    else:
        import torch.multiprocessing
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(train, args=(os.path.join(folder, 'meeting'),), nprocs=o.ranks)
