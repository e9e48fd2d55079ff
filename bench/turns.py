"""turns.py -- what the comparisons in this folder have in common: a program that is run for its turn and never left
behind, the machine's name, and a table that is put into a document. Used by bench/peers/compare and bench/train/compare."""
import os
import re
import signal
import subprocess
import sys
import time


def stop(p):
    """Ends a launcher, which ends its ranks, and after a while whatever is left of them. What it said so far."""
    os.killpg(p.pid, signal.SIGTERM)
    try:
        return p.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        return p.communicate()[0]


def run(command, env, limit_s):
    """What a program printed, and why it failed (None: it did not)."""
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


class Cores:
    """Whether two cores are as near each other as they mostly are, by the time a flag takes from one to the other: a virtual
    machine's cores move, and what goes through shared memory takes two to four times as long. It counts when they were near
    before and after it; after some tries it counts as it is, and is reported."""

    TRIES, WAIT_S, LEAST, MOST = 4, 4.0, 0.6, 1.7

    def __init__(self, build):
        self.command = [build + '/peers/limit', '-n', '2', '-c', 'barrier', '-b', '8', '-e', '8', '-t', '0.005', '-r', '3']
        self.known = os.path.exists(self.command[0]) and len(os.sched_getaffinity(0)) > 1
        self.seen, self.rows, self.far = [], 0, []
        for _ in range(20 if self.known else 0):
            self.near()
            time.sleep(0.05)

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


def machine():
    model = re.search(r'^model name\s*:\s*(.*)$', open('/proc/cpuinfo').read(), re.M)
    return '%s, %d cores, Linux %s, load %.1f' % (model.group(1) if model else os.uname().machine, len(os.sched_getaffinity(0)),
                                                 os.uname().release.split('-')[0], os.getloadavg()[0])


def version(build):
    return subprocess.run([build + '/lockstep', '--version'], capture_output=True, text=True).stdout.split('\n')[0]


def number(v):
    return '%.3f' % v if v < 10 else '%.1f' % v if v < 1000 else '%.0f' % v


def put(path, target, body):
    """Replaces what stands in a document between the two lines about `make TARGET`."""
    begin, end = '<!-- begin: make %s -->' % target, '<!-- end: make %s -->' % target
    text = open(path).read()
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit('compare: %s has no lines "%s" and "%s"' % (path, begin, end))
    with open(path, 'w') as f:
        f.write('%s%s\n%s%s%s' % (before, begin, body, end, after))
