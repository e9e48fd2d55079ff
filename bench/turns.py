"""turns.py -- how the comparisons in this folder run a program: for its turn, on its cores, and never left behind.
Used by bench/peers/compare and bench/train/compare; what counts and what may be published stands in rules.py."""
import os
import signal
import subprocess
import sys
import tempfile
import time


def stop(p):
    """Ends a launcher, which ends its ranks, and after a while whatever is left of them. What it said so far."""
    os.killpg(p.pid, signal.SIGTERM)
    try:
        return p.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return p.communicate()[0]


def run(command, env, limit_s, ranks=0, threads=1, free=False):
    """What a program printed, and why it failed (None: it did not). With ranks: each must be on its cores (peers/pin.h),
    or, where all contestants are free, on all."""
    if not ranks:
        return run_once(command, env, limit_s)
    with tempfile.TemporaryDirectory(prefix='lockstep-bench-') as folder:
        pins = folder + '/pins'
        out, reason = run_once(command, dict(env, BENCH_PINS=pins, BENCH_PIN='free' if free else 'own'), limit_s)
        return out, reason or pinned(pins, ranks, len(os.sched_getaffinity(0)) if free else threads)


def pinned(path, ranks, threads):
    """None where the ranks noted exactly the cores that pin.h gives them, else what was found."""
    cores = sorted(os.sched_getaffinity(0))
    want = {(str(r), ','.join(map(str, sorted({cores[(r * threads + t) % len(cores)] for t in range(threads)})))) for r in range(ranks)}
    try:
        found = {tuple(line.split()) for line in open(path)}
    except OSError:
        found = set()
    if found == want:
        return None
    say = lambda s: ', '.join('rank %s on %s' % p for p in sorted(p for p in s if len(p) == 2)) or 'nothing'
    return 'ranks are not pinned as everybody\'s are: expected %s; found %s' % (say(want), say(found))


def run_once(command, env, limit_s):
    if os.environ.get('PEERS_VERBOSE'):
        print('#', ' '.join('%s=%s' % v for v in env.items()), ' '.join(command), file=sys.stderr)
    try:
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env),
                             start_new_session=True)
    except OSError as e:
        return '', str(e)
    try:
        out, err = p.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return stop(p), 'more than %d s' % limit_s
    except BaseException:  # interrupted: nobody is left behind
        stop(p)
        raise
    lines = [l for l in err.splitlines() if l.strip() and not l.startswith(' ')]  # the last that is no detail
    return out, (lines[-1] if lines else 'exit status %d' % p.returncode) if p.returncode else None


def calibrate(build):
    """Lets Lockstep measure what its choices rest on (lockstep calibrate), as a user would, for the programs of this run alone:
    what is kept of another day counts for nobody. What is to be said of it."""
    path = os.path.abspath(build) + '/peers/calibration.json'
    out, reason = run_once([build + '/lockstep', 'calibrate', '--output', path], {}, 120)
    os.environ['LOCKSTEP_CALIBRATION'] = 'none' if reason else path
    return 'Lockstep was not calibrated: %s' % reason if reason else 'Lockstep was calibrated before the first pass (lockstep calibrate)'


class Cores:
    """Whether two cores are as near each other as they mostly are, by the time a flag takes from one to the other: a virtual
    machine's cores move, and what goes through shared memory takes two to four times as long. It counts when they were near
    before and after it; after some tries it counts as it is, and is reported."""

    TRIES, WAIT_S, LEAST, MOST = 3, 2.0, 0.6, 1.7
    PAUSE_S = float(os.environ.get('BENCH_PAUSE_S', '0.05'))  # tests, whose programs are made up, set it to 0

    def __init__(self, build):
        self.command = [build + '/peers/limit', '-n', '2', '-c', 'barrier', '-b', '8', '-e', '8', '-t', '0.005', '-r', '3']
        self.known = os.path.exists(self.command[0]) and len(os.sched_getaffinity(0)) > 1
        self.seen, self.rows, self.far = [], 0, []
        for _ in range(20 if self.known else 0):
            self.near()
            time.sleep(self.PAUSE_S)

    def near(self):
        if not self.known:
            return True
        rows = [l.split(',') for l in subprocess.run(self.command, capture_output=True, text=True).stdout.splitlines()[1:]]
        us = float(rows[0][9]) if rows else 0
        self.seen.append(us)
        usual = sorted(self.seen)[len(self.seen) // 3]
        return self.LEAST * usual <= us <= self.MOST * usual

    def measured(self, name, one):
        """What one() returns, of a time when they were near."""
        self.rows += 1
        for _ in range(self.TRIES):
            until = time.time() + self.WAIT_S
            before = self.near()
            while not before and time.time() < until:
                time.sleep(0.05)
                before = self.near()
            result = one()
            if before and self.near():
                return result
        self.far.append(name)
        return result

    def __str__(self):
        return '%d of %d measurements in shared memory were made with the cores far apart' % (len(self.far), self.rows)


def number(v):
    return '%.3f' % v if v < 10 else '%.1f' % v if v < 1000 else '%.0f' % v
