"""pin.py -- gives a rank its cores: bench/peers/pin.h in Python, for PyTorch's ranks. Call it first in a rank's process."""
import os


def pin(rank, threads):
    """Every thread that is there already, and those that they start."""
    cores = sorted(os.sched_getaffinity(0))
    own = set(cores) if os.environ.get('BENCH_PIN') == 'free' else {cores[(rank * threads + t) % len(cores)] for t in range(threads)}
    for thread in os.listdir('/proc/self/task'):
        os.sched_setaffinity(int(thread), own)
    if os.environ.get('BENCH_PINS'):
        with open(os.environ['BENCH_PINS'], 'a') as f:
            f.write('%d %s\n' % (rank, ','.join(map(str, sorted(os.sched_getaffinity(0))))))
