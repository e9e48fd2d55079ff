"""step_model.py -- how long a step takes on two hosts, by formulas. Used by bench/zero-hosts.

What goes in was measured on one host, or of the wire alone: the times of a step without communication (gpt_step.Profile), the time
after backward, the delay of the wire, and what plain connections get of its rate, while the ranks compute and while they do not. No
step over the wire goes in, and no factor is fitted.

The wire carries one collective after another, in each direction at the same time. Each takes

    rounds * delay + bytes / rate

where the rate is the lower one as long as the ranks compute: cores that the wire's program and connections need are busy then.

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

What ranks of one host do among each other, sums, checksums and copies of Lockstep cost time of cores, and are taken to be hidden by
the wire.
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
    """One direction, and the clock of a step. mtu: bytes of a packet, of which 52 are headers of IP and TCP; Ethernet adds 38, with
    the gap. rate: bits of payload that plain connections get, by bits_per_s, and beside: while ranks compute; None: as many as
    packets leave room for."""

    def __init__(self, bits_per_s, delay_us, mtu, rate=None, beside=None):
        most = (mtu - 52) / (mtu + 38)
        rate = min(rate or most, most)
        self.ms_per_byte = 8e3 / bits_per_s / rate
        self.ms_per_byte_beside = 8e3 / bits_per_s / min(beside or rate, rate)
        self.delay_ms = delay_us / 1e3
        self.now = 0.0
        self.queue = []  # [delay left, bytes left] of each collective that has not arrived
        self.nbytes = 0.0

    def carry(self, nbytes, rounds):
        """A collective that may start now."""
        self.nbytes += nbytes
        self.queue.append([rounds * self.delay_ms, nbytes])
        return self.queue[-1]

    def all_reduce(self, n):
        return self.carry(n * 2 * (HOSTS - 1) / HOSTS, 2 * (HOSTS - 1))

    def share(self, n):
        """reduce_scatter or all_gather."""
        return self.carry(n * (HOSTS - 1) / HOSTS, HOSTS - 1)

    def move(self, ms, ms_per_byte):
        """The first in the queue moves for so long, or until it has arrived: how long that took."""
        first = self.queue[0]
        delay = min(first[0], ms)
        first[0] -= delay
        carried = min(first[1] * ms_per_byte, ms - delay) if first[0] == 0 else 0.0
        first[1] = 0.0 if carried == first[1] * ms_per_byte else first[1] - carried / ms_per_byte
        if first == [0, 0]:
            self.queue.pop(0)
        return delay + carried

    def compute(self, ms):
        """The ranks compute for so long, and what is in the queue moves meanwhile."""
        end = self.now + ms
        while self.queue and self.now < end:
            self.now += self.move(end - self.now, self.ms_per_byte_beside)
        self.now = end

    def wait(self, collective=None):
        """Until it has arrived, or all have: when that is."""
        arrived = lambda: not self.queue if collective is None else all(one is not collective for one in self.queue)
        while not arrived():
            self.now += self.move(float('inf'), self.ms_per_byte)
        return self.now


def ddp(p, wire):
    """When backward and its collectives have ended."""
    for ready, nbytes in ready_buckets(p.grads):
        wire.compute(ready - wire.now)
        wire.all_reduce(nbytes)
    wire.compute(p.backward_end - wire.now)
    return wire.wait()


def hsdp(p, wire):
    """Sets of shards on one host each, whose values its ranks share: nothing is gathered."""
    wire.compute(p.backward_end - sum(ms for ms, _ in p.backward))
    for ms, nbytes in p.backward:
        wire.compute(ms)
        if nbytes:
            wire.all_reduce(nbytes)
    wire.all_reduce(p.root)
    return wire.wait()


def fsdp(p, wire):
    """One set of shards over all ranks: units are gathered, one ahead (zero.prefetch 1, zero.reshard default)."""
    gathered, sums = {}, []
    wire.wait(wire.share(p.root))

    def through(units, numbers, sums=None):
        for at, (ms, nbytes) in enumerate(units):
            for i in range(at, min(at + 2, len(units))):
                if numbers[i] not in gathered and units[i][1]:
                    gathered[numbers[i]] = wire.share(units[i][1])
                if i == at and numbers[i] in gathered:
                    wire.wait(gathered[numbers[i]])
            wire.compute(ms)
            if sums is not None and nbytes:
                sums.append(wire.share(nbytes))
                if len(sums) >= SLOTS:
                    wire.wait(sums[-SLOTS])  # the next unit takes the slot of the one before this
    n = len(p.forward)
    through(p.forward, list(range(n)))
    for i in range(n - 1):
        gathered.pop(i, None)
    through(p.backward, list(reversed(range(n))), sums)
    wire.share(p.root)
    return wire.wait()


def step(strategy, p, update_ms, wire):
    """Milliseconds."""
    return strategy(p, wire) + update_ms + 2 * (HOSTS - 1) * wire.delay_ms
