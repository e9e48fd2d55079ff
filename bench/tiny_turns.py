"""tiny_turns.py -- steps of recipes/gpt2-tiny.yaml with different options, turn by turn: for bench/invariant and bench/checks."""
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 8  # of the recipe
# no evaluation and no samples: steps alone
STEPS_ONLY = ['--train.eval_every', '1000000', '--train.eval_batches', '1', '--train.sample_every', '0', '--train.sample_tokens', '64',
              '--train.sample_prompt', '', '--log.tensorboard', 'false', '--checkpoint.keep', '2']


def add_options(words, passes, steps):
    """What both programs take."""
    words.add_argument('--build', default=ROOT + '/build')
    words.add_argument('--passes', type=int, default=passes)
    words.add_argument('--steps', type=int, default=steps)
    words.add_argument('--ranks', type=int, default=2)
    words.add_argument('more', nargs='*')


def turn(a, options, ranks, env=None):
    """Milliseconds of the median step without the first tenth, CPU milliseconds per step of the whole run, and the line that the run ends with."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    with tempfile.TemporaryDirectory(prefix='lockstep-bench-') as folder:
        run = folder + '/run'
        command = [a.build + '/lockstep', 'train', ROOT + '/recipes/gpt2-tiny.yaml', '--nproc-per-node', str(ranks), '--train.steps', str(a.steps),
                   '--run.dir', run] + STEPS_ONLY + options + a.more
        p = subprocess.run(command, capture_output=True, text=True, env=env)
        if p.returncode:
            sys.exit('%s: exit status %d: %s' % (' '.join(options), p.returncode, p.stderr.strip()))
        with open(run + '/metrics.jsonl') as f:
            seconds = [json.loads(line)['time_metrics/end_to_end(s)'] for line in f]
    cpu = 1000 * (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / a.steps
    return 1000 * statistics.median(seconds[len(seconds) // 10:]), cpu, re.search(r'^final .*$', p.stdout, re.M).group()


def rotated(names, k):
    """The order of turns in pass k."""
    return names[k % len(names):] + names[:k % len(names)]


def print_row(words, ms, base):
    """A row of the table, whose ratios are to `base` in the same pass; returns their median."""
    ratio = [t / f for t, f in zip(ms, base)]
    print('%-30s %10.2f  %.3f (%.3f to %.3f)' % (words, statistics.median(ms), statistics.median(ratio), min(ratio), max(ratio)))
    return statistics.median(ratio)
