"""turns.py -- what the comparisons in this folder have in common: a program that is run for its turn and never left
behind, the machine's name, and a table that is put into a document. Used by bench/peers/compare and bench/train/compare."""
import os
import re
import signal
import subprocess
import sys


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
