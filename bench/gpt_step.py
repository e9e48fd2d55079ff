"""gpt_step.py -- runs bench_gpt and reads what it printed. Used by bench/zero, bench/zero-hosts and bench/parallel."""
import collections
import statistics

import turns

WARM = 2  # steps of a turn that do not count
LIMIT_S = 600

# ms: of the steps that count; said: digest, pss_mib ...; lines: all others, split
Run = collections.namedtuple('Run', 'ms said lines')
# What a step computes, of rank 0, in ms. forward, backward: (ms, bytes of its parameters) of each unit in its order;
# grads: (ms since the step began, bytes) in the order in which they are ready; backward_end: since the step began;
# root: bytes of the parameters that several units use
Profile = collections.namedtuple('Profile', 'forward backward grads backward_end root')


class Failed(Exception):
    pass


def run(command, steps, warm=WARM, env=None, ranks=0, threads=1):
    """`steps` that count, after `warm` that do not. ranks: those that have to be on cores of their own, one per thread (turns.run)."""
    out, reason = turns.run(command + ['--steps', str(warm + steps)], env or {}, LIMIT_S, ranks, threads)
    if reason:
        raise Failed(reason)
    lines = [line.split(',') for line in out.splitlines()]
    said = {line[0]: line[1] for line in lines if len(line) == 2}
    ms = [float(line[2]) for line in lines if len(line) == 4 and line[0].isdigit()][warm:]
    if len(ms) != steps or 'pss_mib' not in said:
        raise Failed('printed what is not understood:\n' + out)
    return Run(ms, said, lines)


def update_ms(run):
    """From the end of backward to the end of the step: the median of the steps that count (--units)."""
    spans = [float(end) - float(begin) for kind, _, begin, end in (line for line in run.lines if line[0] == 'update')]
    return statistics.median(spans[-len(run.ms):])


def profile(run, wanted):
    """The median of the given steps, position by position (--units)."""
    of = lambda kind, step: [line for line in run.lines if line[0] == kind and int(line[1]) == step]
    middle = lambda rows: [(statistics.median(ms for ms, _ in same), same[0][1]) for same in zip(*rows)]

    def passes(step, which):
        found = [(float(begin), float(end), int(nbytes)) for _, _, way, begin, end, nbytes in of('unit', step) if way == which]
        ends = [later[0] for later in found[1:]] + [found[-1][1]]
        return [(until - begin, nbytes) for (begin, _, nbytes), until in zip(found, ends)]
    return Profile(middle([passes(s, 'forward') for s in wanted]), middle([passes(s, 'backward') for s in wanted]),
                   middle([[(float(line[2]), int(line[3])) for line in of('grad', s)] for s in wanted]),
                   statistics.median(float(of('update', s)[0][2]) for s in wanted), int(run.said['root']))
