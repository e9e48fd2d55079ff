"""step_model.py -- how long a step takes on two hosts, by formulas. Used by bench/zero-hosts.

What goes in was measured on one host, or of the wire with plain connections: the times of a step without communication
(gpt_step.Profile; where the wire is in use, beside such connections, which take cores from the ranks), the time after backward, the
delay of the wire, and what the connections get of its rate. No step over the wire goes in, and no factor is fitted.

The wire carries one collective after another, in each direction at the same time:

    free = max(free, ready) + rounds * delay + bytes / rate

With H = 2 hosts, and schedules of two levels (src/coll/algo_hierarchical.c), of a vector of n bytes there cross in each direction

    all_reduce                      2 (H-1)/H n = n      2 (H-1) = 2 rounds
    reduce_scatter, all_gather        (H-1)/H n = n/2      (H-1) = 1 round
    all_reduce of S shards, between the sets    S * 2 (H-1)/H n/S = n, 2 rounds

With P bytes of parameters, R of them in the root (which several units use) and L in the last unit, a step's sums are

    ddp     P                                  gradients, in buckets, from the first that is full
    hsdp    P                                  sums of shards, unit by unit, once backward has left it
    fsdp    (P + (P - R - L) + P) / 2          values before forward; before backward those of all units but the last, which
                                               zero.reshard: default keeps, as it does the root; gradients
and in all of them the gradient norm, 2 rounds.

What ranks of one host do among each other, sums and checksums cost time of cores, and are taken to be hidden by the wire.
"""

HOSTS = 2
SLOTS = 2         # of gradients of units (src/parallel/slots.c)
FIRST, CAP = 1 << 20, 25 << 20  # buckets of ddp


def ready_buckets(grads, first=FIRST, cap=CAP):
    """(ms, bytes) of each bucket of DDP: it is full when its bytes reach the cap, and ready with its last gradient."""
    found, nbytes = [], 0
    for i, (ms, more) in enumerate(grads):
        nbytes += more
        if nbytes >= (cap if found else first) or i + 1 == len(grads):
            found.append((ms, nbytes))
            nbytes = 0
    return found


class Wire:
    """One direction. mtu: bytes of a packet, of which 52 are headers of IP and TCP; Ethernet adds 38, with the gap. rate: bits of
    payload that plain connections get, by bits_per_s; None: as many as packets leave room for."""

    def __init__(self, bits_per_s, delay_us, mtu, rate=None):
        most = (mtu - 52) / (mtu + 38)
        self.ms_per_byte = 8e3 / bits_per_s / min(rate or most, most)
        self.delay_ms = delay_us / 1e3
        self.free = 0.0
        self.nbytes = 0.0

    def carry(self, ready, nbytes, rounds):
        """When a collective has arrived that may start at `ready`."""
        self.free = max(self.free, ready) + rounds * self.delay_ms + nbytes * self.ms_per_byte
        self.nbytes += nbytes
        return self.free

    def all_reduce(self, ready, n):
        return self.carry(ready, n * 2 * (HOSTS - 1) / HOSTS, 2 * (HOSTS - 1))

    def share(self, ready, n):
        """reduce_scatter or all_gather."""
        return self.carry(ready, n * (HOSTS - 1) / HOSTS, HOSTS - 1)


def ddp(p, wire):
    """When backward and its collectives have ended."""
    for ready, nbytes in ready_buckets(p.grads):
        wire.all_reduce(ready, nbytes)
    return max(p.backward_end, wire.free)


def hsdp(p, wire):
    """Sets of shards on one host each, whose values its ranks share: nothing is gathered."""
    t = p.backward_end - sum(ms for ms, _ in p.backward)
    for ms, nbytes in p.backward:
        t += ms
        if nbytes:
            wire.all_reduce(t, nbytes)
    wire.all_reduce(p.backward_end, p.root)
    return max(p.backward_end, wire.free)


def fsdp(p, wire):
    """One set of shards over all ranks: units are gathered, one ahead (zero.prefetch 1, zero.reshard default)."""
    gathered, t = {}, wire.share(0, p.root)

    def through(units, numbers, t, leave=None):
        for at, (ms, nbytes) in enumerate(units):
            for i in range(at, min(at + 2, len(units))):
                if numbers[i] not in gathered and units[i][1]:
                    gathered[numbers[i]] = wire.share(t, units[i][1])
                if i == at:
                    t = max(t, gathered.get(numbers[i], 0))
            t += ms
            if leave:
                t = max(t, leave(t, nbytes))
        return t
    n = len(p.forward)
    t = through(p.forward, list(range(n)), t)
    for i in range(n - 1):
        gathered.pop(i, None)
    reduced = [0.0] * SLOTS

    def leave(t, nbytes):
        """Until when the next unit waits: the slot of the one before this is its own."""
        reduced.append(wire.share(t, nbytes) if nbytes else t)
        return reduced[-SLOTS]
    t = through(p.backward, list(reversed(range(n))), t, leave)
    wire.share(t, p.root)
    return max(t, wire.free)


def step(strategy, p, update_ms, wire):
    """Milliseconds."""
    return strategy(p, wire) + update_ms + 2 * (HOSTS - 1) * wire.delay_ms
