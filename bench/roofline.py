"""roofline.py -- times that no program on this machine can go below, from the rates that bench/peers/bound.c measures
in the same run. Used by bench/peers/compare and bench/train/compare.

A roofline counts only what must happen: bytes that must be read and written at the rate of a core that does nothing
else, lines that must come from another core, bits that must pass a wire, multiply-adds at the peak of the units. What
can overlap is taken to overlap, and of everything that is uncertain the quicker is taken. So nothing can be quicker;
where something measured is, the roofline is wrong (rules.exceeded), and has to be mended before a table is published.
"""
import collections
import os
import subprocess

WIRE = 1538 / 1460  # bytes on a wire of Ethernet for each byte of payload, at the longest frame


class Machine:
    """Rates, the greatest of every look() so far."""

    def __init__(self, program, most=128 << 20):
        self.command = [program, '--most', str(most)]
        self.rates = collections.defaultdict(dict)  # (what, cores): {bytes: greatest}
        self.known = os.path.exists(program)  # else every roofline is 0

    def look(self):
        if not self.known:
            return
        out = subprocess.run(self.command, capture_output=True, text=True, timeout=600).stdout
        for line in out.splitlines()[1:]:
            what, nbytes, cores, value = line.split(',')
            known, value = self.rates[what, int(cores)], float(value)
            best = min if what == 'load' else max
            known[int(nbytes)] = best(known.get(int(nbytes), value), value)

    def rate(self, what, nbytes):
        """Bytes a second of one core with nbytes in use: never less with fewer bytes, whoever else runs or not."""
        found = collections.defaultdict(float)
        for (w, _), sizes in self.rates.items():
            for size, value in sizes.items() if w == what else ():
                found[size] = max(found[size], value)
        if not found:
            return float('inf')
        from_size = max([s for s in found if s <= nbytes] or [min(found)])
        return max(v for s, v in found.items() if s >= from_size) * 1e9

    def load_s(self):
        """A line that another core has written last."""
        return min([v for (w, _), sizes in self.rates.items() if w == 'load' for v in sizes.values()] or [0]) * 1e-9

    def flops(self, dtype, cores):
        """Of so many cores together, each at its best; f32's units may do the work of bf16 where they are quicker."""
        of = [v / n for (w, n), sizes in self.rates.items() if w in ('f32', dtype) for v in sizes.values()]
        return cores * max(of) * 1e9 if of else float('inf')


def collective_us(m, coll, n, ranks, cores, wire='shm', bits_per_s=0, delay_us=0, narrow=False):
    """The roofline of one collective on n bytes (as the benchmarks count them), in microseconds.

    Work is divided by the ranks, though with more ranks than cores some of them wait for others' turns:
      all_reduce       every input is read once, every result written; sums need the other cores' data read: n each
      reduce_scatter   the same, with a share of a result
      all_gather, all_to_all, broadcast, sendrecv   data only move: their reader pulls and their owner pushes, at once
    """
    if wire.startswith('hosts'):  # n bytes must go from one host to the other, and as many back
        return 1e6 * (n * (0.5 if narrow else 1) * 8 * WIRE / bits_per_s) + delay_us
    busy = min(ranks, cores)
    reads, writes = {'all_reduce': (ranks * n, ranks * n), 'reduce_scatter': (ranks * n, n), 'all_gather': (n, (ranks - 1) * n),
                     'broadcast': (n, (ranks - 1) * n), 'all_to_all': (ranks * n, ranks * n), 'sendrecv': (n, n)}[coll]
    if wire != 'shm':  # all_reduce on tcp: each rank sends and receives n bytes, and the kernel copies them out and in
        reads, writes = 2 * ranks * n, 2 * ranks * n
    reads, writes = reads / ranks, writes / ranks
    flight = 0 if coll == 'broadcast' and wire == 'shm' else m.load_s()  # a leaf may fetch a line before it is asked for it
    at_least = [flight * busy / ranks, reads / m.rate('read', reads), writes / m.rate('write', writes)]
    if wire == 'shm' and busy > 1:
        away = {'all_reduce': n * (busy - 1), 'reduce_scatter': n * (busy - 1), 'all_gather': n * (busy - 1),
                'all_to_all': ranks * n * (busy - 1) / busy, 'broadcast': n, 'sendrecv': n}[coll]
        pull, push = m.rate('pull', away / ranks), m.rate('write', away / ranks)
        if coll in ('all_reduce', 'reduce_scatter'):
            at_least.append(away / ranks / pull)
        elif coll in ('broadcast', 'sendrecv'):
            at_least.append(away / (pull + push) * busy / ranks)
        else:
            at_least.append(away / ranks / (pull + push))
    return 1e6 * max(at_least)


def gpt_ms(m, layers, width, vocab, positions, batch, tokens, dtype, ranks, threads, sharded):
    """The roofline of a training step of GPT-2: the multiply-adds of a rank at the peak of its cores, and then, because
    gradients are clipped by the norm of all of them before any weight changes, the optimizer's bytes: value, two moments
    and gradient read, value and moments written, 28 for each parameter."""
    n = batch * tokens
    matrices = layers * 12 * width * width + vocab * width
    flops = 6 * n * matrices + 6 * layers * batch * width * tokens * (tokens + 1)  # the masked half of attention left out
    parameters = layers * (12 * width * width + 13 * width) + (vocab + positions + 2) * width
    moved, cores = 28 * parameters * (1 if sharded else ranks), ranks * threads
    use = 16 * parameters / cores
    peak = cores * max(m.rate(what, use) for what in ('read', 'write', 'copy'))
    return 1e3 * (flops / m.flops(dtype, threads) + moved / peak)


def mlp_ms(m):
    """The exercise's step: its multiply-adds on one core (64-128-10, 32 samples; the input needs no gradient), and a line
    from another rank."""
    return 1e3 * (2 * 32 * (2 * 64 * 128 + 3 * 128 * 10) / m.flops('f32', 1) + m.load_s())
