#!/usr/bin/env python3
"""Training steps in PyTorch on CPUs whose ranks divide layers, sequences, experts or the depth of a model: what bench_gpt does, with the
same sizes, token ids and output.

    bench/train/torch_parallel.py one --threads 2                               (GPT-2 124M in one process)
    bench/train/torch_parallel.py tp --ranks 2 [--sp]                           (DTensor: ColwiseParallel, RowwiseParallel, SequenceParallel)
    bench/train/torch_parallel.py pp --ranks 2 --schedule 1f1b --micro_batches 4     (torch.distributed.pipelining)
    bench/train/torch_parallel.py cp --ranks 2 --batch 1 --tokens 4096          (ring attention)
    bench/train/torch_parallel.py ep --ranks 2 --batch 8 --experts 4            (Mixtral's layers; all_to_all_single)
    bench/train/torch_parallel.py one --experts 4 --threads 2                   (the same in one process)
    bench/train/torch_parallel.py mixtral --experts 8 --threads 2               (transformers' MixtralForCausalLM)

--batch counts as bench_gpt's does: sequences per rank of ep, per micro-batch of pp, and of all ranks together with tp and cp.
A step: zero_grad, forward, the loss's value, backward, clipping by the norm of all gradients, fused AdamW. Output as torch_gpt.py's; the
loss is rank 0's, with pp the last stage's. What is fast depends on the environment (malloc, OpenMP), too: bench/parallel sets it.

What the forms of parallelism need beside PyTorch's own functions:
* tp: the rows of c_attn are ordered by head, then q, k, v, so that a rank has whole heads; the head is tied again after parallelize_module.
* pp: stages are equal by weights; the gradient of a weight that two stages of different ranks use is summed here, and counts once in the norm.
* cp: the public context_parallel() has no kernel for CPUs, so its ring loop is called with the CPU's flash attention; DDP averages gradients.
* ep: a gradient of an expert is the sum of the ranks' losses', all others are means.
"""
import argparse
import os
import resource
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
from pin import pin  # noqa: E402

WAYS = ('one', 'tp', 'pp', 'cp', 'ep', 'mixtral')
SCHEDULES = {'gpipe': 'ScheduleGPipe', '1f1b': 'Schedule1F1B', 'interleaved': 'ScheduleInterleaved1F1B',
             'zb': 'ScheduleInterleavedZeroBubble', 'zbv': 'ScheduleZBVZeroBubble'}


def arguments():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('way', choices=WAYS)
    for name, value in (('n_layer', 12), ('n_head', 12), ('d_model', 768), ('vocab', 50257), ('seq_len', 1024), ('batch', 4), ('tokens', 64),
                        ('micro_batches', 1), ('experts', 0), ('top', 2), ('ranks', 1), ('threads', 1), ('steps', 5)):
        a.add_argument('--' + name, type=int, default=value)
    a.add_argument('--sp', action='store_true', help='tp: norms and residuals along the sequence, too')
    a.add_argument('--schedule', choices=SCHEDULES, default='1f1b', help='pp')
    a.add_argument('--products', default='eager', help="mixtral: transformers' experts_implementation")
    a.add_argument('--clip', type=float, default=1.0)
    a.add_argument('--lr', type=float, default=1e-4)
    a.add_argument('--weights', metavar='FILE', help='first weights: what bench_gpt --save wrote')
    return a.parse_args()


o = arguments()
os.environ['OMP_NUM_THREADS'] = str(o.threads)  # before torch is loaded
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
import torch_models as models  # noqa: E402

models.sizes = o
RANK = 0  # set where the ranks have met


def is_sharded(p):
    from torch.distributed.tensor import DTensor
    return isinstance(p, DTensor)


def apart(tensors):
    """Plain tensors and DTensors: a fused or foreach function takes no list of both."""
    tensors = list(tensors)
    return [some for some in ([t for t in tensors if is_sharded(t) == sharded] for sharded in (False, True)) if some]


class One:
    """One process; and what all ways have in common."""

    def __init__(self):
        self.model = self.spread(models.Model())
        self.adamw = torch.optim.AdamW([{'params': ps} for ps in apart(self.model.parameters())], lr=o.lr, fused=True)

    def spread(self, model):
        return model

    def batch(self, step):
        """The ids of bench_gpt.c: token i of the run follows from i alone."""
        samplers = o.ranks if o.way == 'ep' else 1
        n = o.batch * o.micro_batches
        first = step * samplers * n + (RANK * n if samplers > 1 else 0)
        i = (first + torch.arange(n)).unsqueeze(1) * (o.tokens + 1) + torch.arange(o.tokens + 1)
        ids = ((i * 2654435761) % 2 ** 32 >> 7) % o.vocab
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    def zero_grad(self):
        self.adamw.zero_grad()

    def forward_backward(self, x, y):
        total = 0.0
        for xs, ys in zip(x.chunk(o.micro_batches), y.chunk(o.micro_batches)):
            loss = models.cross_entropy(self.model(xs), ys) / o.micro_batches
            loss.backward()
            total += loss.item()
        return total

    def grads(self):
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    def norm(self):
        """Of all gradients; a DTensor knows its other parts."""
        squares = 0
        for some in apart(self.grads()):
            n = nn.utils.get_total_norm(some, foreach=True)
            squares = squares + (n.full_tensor() if is_sharded(some[0]) else n) ** 2
        return squares ** 0.5

    def step(self, i):
        x, y = self.batch(i)
        if o.ranks > 1:
            dist.barrier()
        began = time.perf_counter()
        self.zero_grad()
        loss = self.forward_backward(x, y)
        norm = self.norm()
        for some in apart(p for p in self.model.parameters() if p.grad is not None):
            nn.utils.clip_grads_with_norm_(some, o.clip, norm, foreach=True)
        self.adamw.step()
        ms = torch.tensor(1e3 * (time.perf_counter() - began))
        if o.ranks > 1:
            dist.all_reduce(ms, dist.ReduceOp.MAX)
        return ms.item(), loss


class TensorParallel(One):
    def spread(self, model):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
        between = Shard(1) if o.sp else Replicate()  # activations between blocks, [B, T, C]
        plan = {'wte': RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
                'wpe': RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(0) if o.sp else Replicate()),
                'head': ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)}
        for i in model.h:
            for name in ('attn.c_attn', 'mlp.c_fc'):
                plan['h.%s.%s' % (i, name)] = ColwiseParallel(input_layouts=between)
            for name in ('attn.c_proj', 'mlp.c_proj'):
                plan['h.%s.%s' % (i, name)] = RowwiseParallel(output_layouts=between)
            if o.sp:
                plan['h.%s.ln_1' % i] = plan['h.%s.ln_2' % i] = SequenceParallel()
        if o.sp:
            plan['ln_f'] = SequenceParallel()
        parallelize_module(model, init_device_mesh('cpu', (o.ranks,)), plan)
        model.tie()  # each of the two got its own shards
        return model

    def forward_backward(self, x, y):
        from torch.distributed.tensor.parallel import loss_parallel
        with loss_parallel():  # logits stay sharded by the vocabulary
            loss = models.cross_entropy(self.model(x), y)
            loss.backward()
        return loss.full_tensor().item()


class Pipeline(One):
    def __init__(self):
        from torch.distributed import pipelining
        several = o.schedule in ('interleaved', 'zb', 'zbv')  # two stages per rank
        n = (2 if several else 1) * o.ranks
        # a V: the rank of the first stage has the last one, too
        owner = list(range(o.ranks)) + list(range(o.ranks))[::-1] if o.schedule == 'zbv' else [i % o.ranks for i in range(n)]
        head = o.vocab / (12 * o.d_model)  # in blocks, by weights
        ends = [min(o.n_layer, round((i + 1) * (o.n_layer + head) / n)) for i in range(n - 1)] + [o.n_layer]
        self.first, self.last = owner[0], owner[-1]
        self.model, stages = nn.ModuleDict(), []
        for i in range(n):
            if owner[i] == RANK:
                part = models.Model(ends[i - 1] if i else 0, ends[i], i == 0, i == n - 1)
                self.model[str(i)] = part
                stages.append(pipelining.PipelineStage(part, i, n, torch.device('cpu')))
        if self.first == self.last == RANK:
            self.model[str(n - 1)].head.weight = self.model['0'].wte.weight
        tied = [m.head.weight if m.head is not None else m.wte.weight for m in self.model.values() if m.head is not None or m.wte is not None]
        self.shared = tied[0] if tied and self.first != self.last else None
        # scale_grads divides a weight of two stages of one rank twice: each micro-batch's loss is divided in its place
        self.schedule = getattr(pipelining, SCHEDULES[o.schedule])(
            stages if several else stages[0], o.micro_batches, scale_grads=False, loss_fn=lambda z, y: models.cross_entropy(z, y) / o.micro_batches)
        self.adamw = torch.optim.AdamW(self.model.parameters(), lr=o.lr, fused=True)

    def forward_backward(self, x, y):
        losses = []
        self.schedule.step(*([x] if RANK == self.first else []), **(dict(target=y, losses=losses) if RANK == self.last else {}))
        if self.shared is not None:
            dist.all_reduce(self.shared.grad)
        loss = torch.stack(losses).sum() if losses else torch.zeros(())
        dist.broadcast(loss, self.last)
        return loss.item()

    def norm(self):
        once = [p.grad for p in self.model.parameters() if p.grad is not None and not (p is self.shared and RANK == self.last)]
        squares = nn.utils.get_total_norm(once, foreach=True) ** 2 if once else torch.zeros(())
        dist.all_reduce(squares)
        return squares ** 0.5


class Replicas(One):
    """DistributedDataParallel of everything except `own` parameters."""

    own = ()

    def spread(self, model):
        if o.ranks == 1:
            return model
        own = {id(p) for p in self.own}
        skip = [name for name, p in model.named_parameters() if id(p) in own]
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, skip)
        # positions differ from rank to rank under cp: buffers are not rank 0's
        return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)

    def zero_grad(self):
        self.adamw.zero_grad(set_to_none=False)  # gradients stay in the buckets


class ContextParallel(Replicas):
    """Each rank has two pieces of every sequence, one from the front and one from the back: equal work under a causal mask."""

    def __init__(self):
        from torch.distributed.device_mesh import init_device_mesh
        use_ring(init_device_mesh('cpu', (o.ranks,)).get_group())
        super().__init__()
        model = self.model.module
        with torch.no_grad():
            model.position = self.part(model.position, 0)

    @staticmethod
    def part(t, dim):
        pieces = t.chunk(2 * o.ranks, dim)
        return torch.cat([pieces[RANK], pieces[2 * o.ranks - 1 - RANK]], dim)

    def forward_backward(self, x, y):
        return super().forward_backward(self.part(x, 1), self.part(y, 1))


def use_ring(group):
    """Attention by PyTorch's own ring loop, with the CPU's flash kernels, which it does not know of."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as cp
    cp._cp_options.enable_load_balance = True
    cp.set_rotate_method('alltoall')
    aten = torch.ops.aten

    def forward(q, k, v, is_causal):
        return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)

    def backward(query, key, value, out, logsumexp, is_causal, grad_out):
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(grad_out, query, key, value, out, logsumexp, 0.0, is_causal)

    class Ring(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            out, lse = cp._templated_ring_attention(group, 2, forward, q, k, v, is_causal=True)
            ctx.save_for_backward(q, k, v, out, lse)
            return out

        @staticmethod
        def backward(ctx, grad):
            q, k, v, out, lse = ctx.saved_tensors
            return cp._templated_ring_attention_backward(group, 2, backward, grad.contiguous(), 'grad_out', q, k, v, out, lse, True)[:3]

    models.Attention.attend = staticmethod(Ring.apply)


class ExpertParallel(Replicas):
    def spread(self, model):
        self.own = [p for name, p in model.named_parameters() if '.expert.' in name]
        return super().spread(model)

    def forward_backward(self, x, y):
        loss = super().forward_backward(x, y)
        for p in self.own:
            if p.grad is None:
                p.grad = torch.zeros_like(p)  # no row came
            p.grad /= o.ranks
        return loss

    def norm(self):
        own = {id(p) for p in self.own}
        others = [p.grad for p in self.model.parameters() if id(p) not in own]
        squares = nn.utils.get_total_norm([p.grad for p in self.own], foreach=True) ** 2
        dist.all_reduce(squares)
        return (squares + nn.utils.get_total_norm(others, foreach=True) ** 2) ** 0.5


class Mixtral(One):
    """transformers' model; it has no way to divide anything here."""

    def __init__(self):
        self.model = models.mixtral()
        self.adamw = torch.optim.AdamW(self.model.parameters(), lr=o.lr, fused=True)

    def forward_backward(self, x, y):
        loss = models.cross_entropy(self.model(input_ids=x, use_cache=False).logits, y)
        loss.backward()
        return loss.item()


def train(rank, meeting):
    global RANK
    RANK = models.rank = rank
    pin(rank, o.threads)
    torch.set_num_threads(o.threads)
    if o.ranks > 1:
        dist.init_process_group('gloo', init_method='file://' + meeting, rank=rank, world_size=o.ranks)
    torch.manual_seed(0)
    way = {'one': One, 'tp': TensorParallel, 'pp': Pipeline, 'cp': ContextParallel, 'ep': ExpertParallel, 'mixtral': Mixtral}[o.way]()
    if rank == 0:
        print('# PyTorch %s' % torch.__version__)
        print('step,sync,ms,loss', flush=True)
    for i in range(o.steps):
        ms, loss = way.step(i)
        if rank == 0:
            print('%d,1,%.3f,%.7g' % (i + 1, ms, loss), flush=True)
    memory = torch.tensor(models.pss(), dtype=torch.float64)
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
