"""What PyTorch's DCP saves of FSDP2 models with AdamW, for tests/long_dcp_fsdp2.sh: a folder per form, and beside it
the whole tensors in one file, want.safetensors, under Lockstep's names.

    python3 tests/long_dcp_fsdp2.py FOLDER
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

STEPS, RANKS = 3, 2


class Attention(torch.nn.Module):
    """Names, shapes and orientation of transformers' GPT-2, whose Conv1D has [in, out]."""

    def __init__(self, c):
        super().__init__()
        self.c_attn, self.c_proj = Conv1D(3 * c, c), Conv1D(c, c)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], 2, -1).transpose(1, 2) for t in self.c_attn(x).split(x.shape[2], 2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))


class Conv1D(torch.nn.Module):
    def __init__(self, out, c):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(c, out) * 0.02)
        self.bias = torch.nn.Parameter(torch.zeros(out))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = torch.nn.LayerNorm(c), Attention(c), torch.nn.LayerNorm(c)
        self.mlp = torch.nn.ModuleDict({'c_fc': Conv1D(4 * c, c), 'c_proj': Conv1D(c, 4 * c)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        y = torch.nn.functional.gelu(self.mlp['c_fc'](self.ln_2(x)), approximate='tanh')
        return x + self.mlp['c_proj'](y)


class GPT2(torch.nn.Module):
    def __init__(self, vocab, c, layers, length):
        super().__init__()
        self.transformer = torch.nn.ModuleDict({
            'wte': torch.nn.Embedding(vocab, c), 'wpe': torch.nn.Embedding(length, c),
            'h': torch.nn.ModuleList(Block(c) for _ in range(layers)), 'ln_f': torch.nn.LayerNorm(c)})
        self.lm_head = torch.nn.Linear(c, vocab, bias=False)
        self.lm_head.weight = self.transformer['wte'].weight

    def forward(self, ids):
        t = self.transformer
        x = t['wte'](ids) + t['wpe'](torch.arange(ids.shape[1]))
        for block in t['h']:
            x = block(x)
        return self.lm_head(t['ln_f'](x))


def mlp():
    m = torch.nn.Sequential(torch.nn.Linear(64, 13), torch.nn.ReLU(), torch.nn.Linear(13, 10))
    return m, lambda: m(torch.randn(4, 64)).square().mean()


def gpt2():
    m = GPT2(int(os.environ['VOCAB']), 16, 2, 16)
    for b in m.transformer['h']:
        fully_shard(b)
    return m, lambda: m(torch.randint(0, 20, (2, 16))).square().mean()


def whole(t):
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone().contiguous()


def save(folder, state, consolidate=False):
    dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(folder, save_distributed=True,
                                                               enable_consolidation=consolidate))


def go(rank, out, store):
    dist.init_process_group('gloo', init_method='file://' + store, rank=rank, world_size=RANKS)
    dist.init_device_mesh('cpu', (RANKS,))
    for name, make in (('mlp', mlp), ('gpt2', gpt2)):
        torch.manual_seed(0)
        model, loss = make()
        fully_shard(model)
        optim = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(STEPS):
            torch.manual_seed(100 * step + rank)
            loss().backward()
            optim.step()
            optim.zero_grad()
        weights, state = get_state_dict(model, optim, options=StateDictOptions(flatten_optimizer_state_dict=True))
        tensors = {k: v for k, v in state.items() if torch.is_tensor(v)}
        tied = weights.pop('lm_head.weight', None)  # the writer refuses tensors that share memory
        if tied is not None:
            save(f'{out}/{name}-tied', {'model': {**weights, 'lm_head.weight': tied.clone()}, 'optim': tensors})
            save(f'{out}/{name}-untied', {'model': {**weights, 'lm_head.weight': tied * 2}, 'optim': tensors})
        save(f'{out}/{name}-keys', {'model': weights, 'optim': tensors})
        save(f'{out}/{name}-consolidated', {'model': weights, 'optim': tensors}, True)
        save(f'{out}/{name}-plain', {**weights, **tensors})
        save(f'{out}/{name}-weights', {'model': weights})
        try:  # numbers that are no tensors become pickles, which PyTorch itself cannot read back
            save(f'{out}/{name}-pickles', {'model': weights, 'optim': state})
        except Exception as e:
            print(f'rank {rank}: {name}-pickles: {e!r:.80}')
        want = {k: whole(v) for k, v in weights.items()}
        for k, v in tensors.items():
            fqn, which = k.removeprefix('state.').rsplit('.', 1)
            want[f'optim.{which}.{fqn}'] = whole(v)
        if rank == 0:
            save_file(want, f'{out}/{name}-want.safetensors')
            other = dict(want)
            other['0.bias' if name == 'mlp' else 'transformer.ln_f.bias'] += 1
            save_file(other, f'{out}/{name}-other.safetensors')
    dist.destroy_process_group()


if __name__ == '__main__':
    os.makedirs(sys.argv[1])
    mp.spawn(go, (sys.argv[1], os.path.abspath(sys.argv[1]) + '/store'), nprocs=RANKS)
