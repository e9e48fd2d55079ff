"""rules.py -- what counts in a comparison and what may be published: docs/performance.md states the rules, this
enforces them. Used by bench/peers/compare and bench/train/compare.

A run that is written into a document, or recorded, has a line in bench/results/runs.csv from its first second on, whatever
becomes of it: a run that is given up stays there as "not finished".
"""
import csv
import os
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOISE = 0.97  # a roofline is exceeded by what takes less than so much of it
COLUMNS = ['run', 'table', 'date', 'commit', 'machine', 'command', 'passes', 'rows', 'ahead', 'level', 'behind', 'not_compared',
           'targets_reached', 'targets', 'not_measured', 'rooflines_exceeded', 'outcome']
OWN_FILES = ('docs/performance.md', 'bench/results/runs.csv')  # what the runs themselves write


# --- what counts -----------------------------------------------------------------------------------------------------


def result(ratios):
    """ratios: in each pass, the time of the fastest peer of that pass over ours. Ahead only where the whole spread is."""
    if not ratios:
        return ''
    return 'ahead' if min(ratios) > 1 else 'behind' if max(ratios) < 1 else 'level'


def reached(ratios, target):
    """Whether every pass reaches the target."""
    return bool(ratios) and min(ratios) >= target


def best_of(rivals, passes):
    """Who is compared with in each pass, {pass: value}: the least of those who were measured in it; and the name of who
    has the least median of those that were there in most passes. rivals: {name: {pass: value}}."""
    import statistics
    if not rivals:
        return '', {}
    most = max(len(v) for v in rivals.values())
    best = min((n for n in rivals if len(rivals[n]) == most), key=lambda n: statistics.median(rivals[n].values()))
    return best, {p: min(v[p] for v in rivals.values() if p in v) for p in passes if any(p in v for v in rivals.values())}


def exceeded(rows):
    """rows: (text, least figure of a pass, roofline). Sentences about those that are below their roofline."""
    return ['the bound is wrong: %s took %.4g, and its roofline says that nothing takes less than %.4g' % (text, figure, roof)
            for text, figure, roof in rows if figure is not None and roof and figure < NOISE * roof]


# --- machine and commit ------------------------------------------------------------------------------------------------


def processor():
    """The kind of processor, by which settings and quick tables are kept."""
    text = open('/proc/cpuinfo').read()
    field = lambda name: (re.search(r'^%s\s*:\s*(.*)$' % name, text, re.M) or [None, '?'])[1]
    name = os.environ.get('BENCH_PROCESSOR') or '%s (family %s, model %s)' % (field('model name'), field('cpu family'), field('model'))
    return '%s, %d cores' % (name, len(os.sched_getaffinity(0)))


def machine():
    return '%s, Linux %s, load %.1f' % (processor(), os.uname().release.split('-')[0], os.getloadavg()[0])


def version(build):
    return subprocess.run([build + '/lockstep', '--version'], capture_output=True, text=True).stdout.split('\n')[0]


def git(*args):
    return subprocess.run(['git', '-C', ROOT] + list(args), capture_output=True, text=True).stdout


def not_one_commit(build):
    """Why the build is not of the commit that is checked out, unchanged; None where it is."""
    head = git('rev-parse', 'HEAD').strip()
    changed = [line[3:] for line in git('status', '--porcelain').splitlines() if line[3:] not in OWN_FILES and line[3:] != 'bench/results/']
    built = re.search(r'commit ([0-9a-f]+)', version(build))
    if not head:
        return 'this is no git checkout, so the commit is not known'
    if changed:
        return 'the tree differs from its commit: %s' % ', '.join(changed[:3])
    if not built or not head.startswith(built.group(1)):
        return '%s is a build of %s, and %s is checked out: build again' % (build, built.group(1) if built else 'no known commit', head[:9])
    return None


def may_publish(o, narrowed, least_passes):
    """Ends the program where a run that is to be published is not one whole run of one commit. narrowed: the options
    that leave something out, and are set."""
    how = '--write' if o.write else '--write-quick' if o.write_quick else '--record'
    if o.write_quick and not o.quick:
        sys.exit('compare: --write-quick is for --quick')
    if o.write and o.quick:
        sys.exit('compare: --write publishes a whole table, and --quick leaves rows out: use --write-quick')
    if narrowed:
        sys.exit('compare: %s publishes a whole table, and %s leaves rows out: run it without' % (how, ', '.join(narrowed)))
    if o.passes < least_passes:
        sys.exit('compare: %s needs at least %d passes, here are %d' % (how, least_passes, o.passes))
    reason = not_one_commit(o.build)
    if reason:
        sys.exit('compare: %s publishes one commit: %s' % (how, reason))


# --- the list of runs --------------------------------------------------------------------------------------------------


class Run:
    """A line of bench/results/runs.csv, there from the start of the run. With `quiet`, no line: nothing is published."""

    def __init__(self, table, build, passes, quiet):
        commit = re.search(r'commit ([0-9a-f]+)', version(build))
        now = time.gmtime()
        self.path, self.quiet = ROOT + '/bench/results/runs.csv', quiet
        self.row = dict.fromkeys(COLUMNS, '')
        self.row.update(run=time.strftime('%Y%m%dT%H%M%S', now) + '-' + table, table=table, date=time.strftime('%Y-%m-%d %H:%M UTC', now),
                        commit=commit.group(1) if commit else 'unknown', machine=machine(), passes=passes, outcome='not finished',
                        command=' '.join([os.path.relpath(sys.argv[0], ROOT)] + sys.argv[1:]))
        self.save()

    @property
    def name(self):
        return self.row['run']

    def save(self):
        if self.quiet:
            return
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        rows = list(csv.DictReader(open(self.path))) if os.path.exists(self.path) else []
        at = [i for i, r in enumerate(rows) if r['run'] == self.name]
        if at:
            rows[at[0]] = self.row
        else:
            rows.append(self.row)
        with open(self.path + '.tmp', 'w', newline='') as f:
            w = csv.DictWriter(f, COLUMNS, lineterminator='\n')
            w.writeheader()
            w.writerows(rows)
        os.replace(self.path + '.tmp', self.path)

    def finish(self, counts, outcome):
        self.row.update(counts, outcome=outcome)
        self.save()

    def head(self):
        """What stands above a table."""
        return 'Run: %s%s.\nMachine: %s.\nCommit: %s.\nCommand: `%s`, %s passes.\n' % (
            self.name, '' if self.quiet else ' in bench/results/runs.csv', self.row['machine'], self.row['commit'], self.row['command'], self.row['passes'])


def count(rows):
    """rows: dicts with result, target (whether there is one), reached, measured. What a run's line and a table's end say."""
    of = lambda name: sum(r['result'] == name for r in rows)
    with_target = [r for r in rows if r['measured'] and r['target']]
    return dict(rows=len(rows), ahead=of('ahead'), level=of('level'), behind=of('behind'), not_measured=sum(not r['measured'] for r in rows),
                not_compared=sum(r['measured'] and not r['result'] for r in rows), targets=len(with_target),
                targets_reached=sum(r['reached'] for r in with_target))


def summary(c):
    return ('%(rows)d rows: %(ahead)d ahead, %(level)d level, %(behind)d behind, %(not_compared)d without a peer to compare with, '
            '%(not_measured)d not measured; %(targets_reached)d of %(targets)d targets reached in every pass' % c)


def publish(o, run, rows, wrong, table, target):
    """Ends a public run: its line in the list in any case, its table in the document where nothing speaks against it. The
    exit status."""
    counts = dict(count(rows), rooflines_exceeded=len(wrong))
    short = [r['text'] for r in rows if r['measured'] and r['passes'] < o.passes]
    changed = not_one_commit(o.build)
    against = ('a roofline is exceeded' if wrong else 'a row lacks a pass: %s' % short[0] if short else
               'commit or tree changed meanwhile: %s' % changed if changed else '')
    if against:
        run.finish(counts, 'not published: ' + against)
        print('compare: nothing is written: %s; the run is listed in %s' % (against, run.path), file=sys.stderr)
        return 1
    if o.write:
        put(o.write, target, table)
    if o.write_quick:
        put_part(o.write_quick, target + ' quick', processor(), table)
    path = o.write or o.write_quick
    run.finish(counts, 'written to %s' % os.path.relpath(path, ROOT) if path else 'recorded')
    return 0


# --- documents -------------------------------------------------------------------------------------------------------------


def put(path, target, body):
    """Replaces what stands in a document between the two lines about `make TARGET`."""
    before, _, after = between(path, target)
    begin, end = marks(target)
    with open(path, 'w') as f:
        f.write('%s%s\n%s%s%s' % (before, begin, body, end, after))


def put_part(path, target, name, body):
    """Replaces the part of a name, a processor's, between these two lines; the other parts stay."""
    _, inside, _ = between(path, target)
    parts = dict((p.split('\n', 1) + [''])[:2] for p in re.split(r'^#### ', inside, flags=re.M)[1:])
    parts[name] = '\n%s\n' % body.strip('\n')
    put(path, target, ''.join('#### %s\n\n%s\n\n' % (n, t.strip('\n')) for n, t in parts.items()))


def marks(target):
    return '<!-- begin: make %s -->' % target, '<!-- end: make %s -->' % target


def between(path, target):
    begin, end = marks(target)
    before, found, rest = open(path).read().partition(begin)
    inside, closed, after = rest.partition(end)
    if not found or not closed:
        sys.exit('compare: %s has no lines "%s" and "%s"' % (path, begin, end))
    return before, inside, after


class Progress:
    """How far a run is, and an estimate of what is left: shares of work that are done, `done` of `all`."""

    def __init__(self, everything):
        self.all, self.done, self.began = everything, 0, time.time()

    def step(self, what, n=1):
        self.done += n
        spent = time.time() - self.began
        left = spent * (self.all - self.done) / max(self.done, 1)
        print('%3d %%, %d min %02d s, about %d min to go: %s' % (100 * self.done / max(self.all, 1), spent // 60, spent % 60, (left + 30) // 60, what),
              file=sys.stderr, flush=True)
