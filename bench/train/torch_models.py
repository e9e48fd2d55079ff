"""torch_models.py -- the models that torch_parallel.py trains, of its options: GPT-2, and with --experts Mixtral's, both with a tied head.

A model can be a run of blocks: a stage of a pipeline. Matrices have the rows and columns of nn.Linear.
"""
import json
import struct

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

sizes = None  # torch_parallel.py's options
rank = 0


def cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Attention(nn.Module):
    """GPT-2's. The rows of c_attn are ordered by head, then q, k, v: a rank of tensor parallelism gets whole heads."""

    @staticmethod
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def __init__(self):
        super().__init__()
        C = sizes.d_model
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)

    def forward(self, x, _):
        qkv = self.c_attn(x)
        B, T, _ = qkv.shape
        q, k, v = qkv.view(B, T, -1, 3, sizes.d_model // sizes.n_head).permute(3, 0, 2, 1, 4)
        y = self.attend(q, k, v)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, -1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        C = sizes.d_model
        self.c_fc, self.c_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate='tanh'))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        C = sizes.d_model
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(C), Attention(), nn.LayerNorm(C), Mlp()

    def forward(self, x, rope):
        x = x + self.attn(self.ln_1(x), rope)
        return x + self.mlp(self.ln_2(x))


# --- Mixtral's layers ----------------------------------------------------------------------------------------------


def width_of_expert():
    return sizes.d_model * 8 // 3


def rotated(x, rope):
    """x [B, H, T, D]; Llama's halves."""
    cos, sin = rope
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        C = sizes.d_model
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(C, C, bias=False) for _ in range(4))

    def forward(self, x, rope):
        B, T, C = x.shape
        q, k, v = (p(x).view(B, T, sizes.n_head, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rotated(q, rope), rotated(k, rope), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, C))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        C, F_ = sizes.d_model, width_of_expert()
        self.w1, self.w3, self.w2 = nn.Linear(C, F_, bias=False), nn.Linear(C, F_, bias=False), nn.Linear(F_, C, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """y = sum over the --top chosen e of w_e expert_e(x), w the softmax of the chosen logits; each rank has a part of the experts."""

    def __init__(self):
        super().__init__()
        self.here = sizes.experts // sizes.ranks
        self.router = nn.Linear(sizes.d_model, sizes.experts, bias=False)
        self.expert = nn.ModuleList(Expert() for _ in range(self.here))

    def forward(self, x):
        rows = x.reshape(-1, sizes.d_model)
        weight, chosen = self.router(rows).topk(sizes.top, dim=-1)
        weight = torch.softmax(weight, dim=-1)
        order = chosen.flatten().argsort(stable=True)  # copies of tokens, by expert
        token = order // sizes.top
        count = chosen.flatten().bincount(minlength=sizes.experts)
        sent = rows[token]
        if sizes.ranks == 1:
            back = torch.cat([expert(part) for expert, part in zip(self.expert, sent.split(count.tolist()))])
        else:
            back = self.exchanged(sent, count)
        return torch.zeros_like(rows).index_add(0, token, back * weight.flatten()[order].unsqueeze(1)).view_as(x)

    def exchanged(self, sent, count):
        """Each row is sent to the rank that has its expert, and the result back to where it came from."""
        from torch.distributed._functional_collectives import all_to_all_single_autograd as all_to_all
        coming = torch.empty_like(count)  # [from rank, expert here]
        dist.all_to_all_single(coming, count)
        coming = coming.view(sizes.ranks, self.here)
        sizes_out, sizes_in = count.view(sizes.ranks, self.here).sum(1).tolist(), coming.sum(1).tolist()
        rows = all_to_all(sent.contiguous(), sizes_in, sizes_out, dist.group.WORLD)
        pieces = rows.split(coming.flatten().tolist())  # by rank, then by expert
        done = [None] * len(pieces)
        for e, expert in enumerate(self.expert):
            mine = range(e, len(pieces), self.here)
            y = expert(torch.cat([pieces[i] for i in mine]))
            for i, part in zip(mine, y.split([pieces[i].shape[0] for i in mine])):
                done[i] = part
        return all_to_all(torch.cat(done), sizes_out, sizes_in, dist.group.WORLD)


class MixtralBlock(nn.Module):
    def __init__(self):
        super().__init__()
        C = sizes.d_model
        self.input_norm, self.self_attn, self.post_norm, self.moe = nn.RMSNorm(C, 1e-5), LlamaAttention(), nn.RMSNorm(C, 1e-5), Experts()

    def forward(self, x, rope):
        x = x + self.self_attn(self.input_norm(x), rope)
        return x + self.moe(self.post_norm(x))


# --- all together --------------------------------------------------------------------------------------------------


class Model(nn.Module):
    """Blocks begin .. end - 1; the embedding where first, the last norm and the head where last. forward gives logits of the last stage,
    activations of the others."""

    def __init__(self, begin=0, end=None, first=True, last=True):
        super().__init__()
        C, moe = sizes.d_model, sizes.experts > 0
        self.wte = nn.Embedding(sizes.vocab, C) if first else None
        self.wpe = nn.Embedding(sizes.seq_len, C) if first and not moe else None
        self.h = nn.ModuleDict({str(i): MixtralBlock() if moe else Block() for i in range(begin, sizes.n_layer if end is None else end)})
        self.ln_f = (nn.RMSNorm(C, 1e-5) if moe else nn.LayerNorm(C)) if last else None
        self.head = nn.Linear(C, sizes.vocab, bias=False) if last else None
        if first and last:
            self.tie()
        self.register_buffer('position', torch.arange(sizes.tokens), persistent=False)
        half = C // sizes.n_head // 2
        angle = torch.arange(sizes.tokens)[:, None] * 10000.0 ** (-torch.arange(half) / half) if moe else torch.zeros(0)
        self.register_buffer('cos', angle.cos(), persistent=False)
        self.register_buffer('sin', angle.sin(), persistent=False)
        given = load(sizes.weights) if sizes.weights else None
        with torch.no_grad():
            for name, p in self.named_parameters():
                if given is not None:
                    p.copy_(of_file(name, given))
                elif p.dim() > 1:
                    p.normal_(std=0.02)

    def tie(self):
        self.head.weight = self.wte.weight

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x)
        if self.wpe is not None:
            x = x + self.wpe(self.position)
        for block in self.h.values():
            x = block(x, (self.cos, self.sin))
        return x if self.head is None else self.head(self.ln_f(x))


def mixtral():
    """transformers' model of the same sizes."""
    from transformers import MixtralConfig, MixtralForCausalLM
    config = MixtralConfig(vocab_size=sizes.vocab, hidden_size=sizes.d_model, intermediate_size=width_of_expert(), num_hidden_layers=sizes.n_layer,
                           num_attention_heads=sizes.n_head, num_key_value_heads=sizes.n_head, max_position_embeddings=sizes.seq_len,
                           rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, num_local_experts=sizes.experts,
                           num_experts_per_tok=sizes.top, output_router_logits=False, attn_implementation='sdpa')
    if sizes.products:
        config._experts_implementation = sizes.products
    model = MixtralForCausalLM(config)
    model.train()
    if sizes.weights:
        given = load(sizes.weights)
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.copy_(of_transformers(name, given))
    return model


# --- first weights: what bench_gpt --save wrote ---------------------------------------------------------------------


def load(path):
    with open(path, 'rb') as f:
        header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
        data = bytearray(f.read())
    state = {}
    for name, t in header.items():
        if name != '__metadata__':
            begin, end = t['data_offsets']
            state[name] = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin).view(t['shape'])
    return state


def of_file(name, given):
    """GPT-2's matrices are [in, out] there, the rows of c_attn q, then k, then v; Mixtral's experts are one matrix, w2's transposed."""
    if not sizes.experts:
        t = given['transformer.' + ('wte.weight' if name == 'head.weight' else name)]
        if name.endswith(('c_attn.weight', 'c_proj.weight', 'c_fc.weight')):
            t = t.t()
        if 'c_attn' in name:
            t = t.reshape(3, sizes.n_head, -1, *t.shape[1:]).transpose(0, 1).reshape(t.shape)
        return t
    if name in ('wte.weight', 'head.weight', 'ln_f.weight'):
        return given['model.norm.weight' if name == 'ln_f.weight' else 'model.embed_tokens.weight']
    layer, part = name.split('.', 2)[1:]
    of = lambda what: given['model.layers.%s.%s' % (layer, what)]
    if part.startswith('moe.expert.'):
        _, _, e, which, _ = part.split('.')
        t = of('block_sparse_moe.experts.%s.weight' % which).view(sizes.experts, width_of_expert(), sizes.d_model)
        t = t[rank * (sizes.experts // sizes.ranks) + int(e)]
        return t.t() if which == 'w2' else t
    return of({'moe.router.weight': 'block_sparse_moe.gate.weight', 'input_norm.weight': 'input_layernorm.weight',
               'post_norm.weight': 'post_attention_layernorm.weight'}.get(part, part))


def of_transformers(name, given):
    """Names of transformers 5: a layer's experts are gate_up_proj [E, 2 F, C] and down_proj [E, C, F]."""
    if name == 'lm_head.weight':
        return given['model.embed_tokens.weight']
    if name in given:
        return given[name]
    layer, part = name.split('.', 3)[2:]
    of = lambda what: given['model.layers.%s.block_sparse_moe.%s.weight' % (layer, what)]
    stacked = lambda which: of('experts.' + which).view(sizes.experts, width_of_expert(), sizes.d_model)
    if part.endswith('experts.gate_up_proj'):
        return torch.cat([stacked('w1'), stacked('w3')], 1)
    if part.endswith('experts.down_proj'):
        return stacked('w2').transpose(1, 2)
    return of('gate')


def pss():
    """MiB of this process, where pages that several map count by a share; 0: the system does not say."""
    try:
        with open('/proc/self/smaps_rollup') as f:
            return sum(float(line.split()[1]) for line in f if line.startswith('Pss:')) / 1024
    except OSError:
        return 0.0
