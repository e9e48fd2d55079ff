#!/usr/bin/env python3
"""explain_layouts.py -- random layouts: `lockstep explain` of the configuration before the run, and of the run.

   tests/explain_layouts.py LOCKSTEP BASE.yaml FIRST-SEED COUNT

COUNT layouts that a run accepts are drawn from FIRST-SEED on. Each trains 4 steps on ranks that are threads. Then, for every
rank and kind of collective, the plan's calls and bytes are those of `train --json`, which counts them rank by rank, and, for
every group, those of the run's comm.json; the plan's memory is that of `train --json`. A layout that a run refuses is refused
by explain, too. (Of rows to experts a plan has the most that there can be.)
"""
import json, random, re, shutil, subprocess, sys

LOCKSTEP, BASE, FIRST, COUNT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
COLLS = ('all_reduce', 'reduce_scatter', 'all_gather', 'broadcast', 'reduce', 'gather', 'scatter', 'all_to_all', 'barrier', 'sendrecv')


def draw(seed):
    """(ranks, flags)"""
    r = random.Random(seed)
    pick = r.choice
    model = pick(('gpt2', 'llama', 'moe'))
    while True:
        dp, tp, cp, ep = pick((1, 2, 4)), pick((1, 1, 2, 4)), pick((1, 1, 2, 4)), pick((1, 2, 4)) if model == 'moe' else 1
        pp = pick((1, 1, 2))
        if 1 < pp * dp * tp * cp * ep <= 16:
            break
    f = ['--model.name', model, '--parallel.dp', dp, '--parallel.tp', tp, '--parallel.cp', cp, '--parallel.ep', ep]
    if model == 'moe':
        f += ['--model.n_experts', 8, '--model.top_k', 2, '--model.d_expert', 16]
    if tp > 1 and r.random() < 0.5:
        f += ['--parallel.sp', 'true']
    elif tp > 1 and r.random() < 0.5:
        f += ['--parallel.tp_pieces', pick((2, 3, 8))]
    if cp > 1:
        f += ['--parallel.context', pick(('ring', 'gather', 'ulysses')), '--parallel.cp_split', pick(('zigzag', 'contiguous'))]
    if pp > 1:
        f += ['--parallel.pp', pp, '--pipeline.schedule', pick(('gpipe', '1f1b', 'zb-h1'))]
        split = random.Random('split %d' % seed).choice((None, '0.5,1.5', '1.5,0.5', '0,2'))  # of its own: all else stays
        f += ['--pipeline.split', split] if split else []
    stage = r.randrange(4)
    f += ['--zero.stage', stage]
    if stage == 3:
        f += ['--zero.copy', pick(('host', 'rank'))]
    if stage > 0 and ep == 1 and dp * cp >= 4 and r.random() < 0.4:
        f += ['--zero.hsdp', 2]
    if r.random() < 0.5:
        f += ['--train.micro_batch', pick((1, 2))]
    f += ['--train.recompute', pick(('none', 'selective', 'full')), '--train.dtype', pick(('f32', 'f32', 'bf16'))]
    if not (stage == 3 and 'host' in f) and r.random() < 0.3:
        f += ['--comm.transport', 'tcp']
    return pp * dp * tp * cp * ep, [str(x) for x in f]


def call(*words):
    p = subprocess.run([LOCKSTEP, *words], capture_output=True, text=True, timeout=120)
    return p.returncode, p.stdout, p.stderr


def main():
    seed, done, refused, varied = FIRST, 0, 0, 0
    while done < COUNT:
        ranks, flags = draw(seed)
        name = 'seed %d: %d ranks, %s' % (seed, ranks, ' '.join(flags))
        seed += 1
        shutil.rmtree('run', ignore_errors=True)
        code, plan, why = call('explain', BASE, '-n', str(ranks), *flags, '--json')
        ran, out, err = call('train', BASE, '-n', str(ranks), *flags, '--ranks-as', 'threads', '--run.dir', 'run', '--json')
        if ran == 78:
            assert code == 78, '%s: a run is refused, and explain is not: %s' % (name, err)
            refused += 1
            continue
        assert ran == 0, '%s: train ends with %d: %s' % (name, ran, err)
        assert code == 0, '%s: explain ends with %d: %s' % (name, code, why)
        plan, counted = json.loads(plan), json.loads(out[out.index('{"lockstep_train"'):])
        varies = '--parallel.ep' in flags and flags[flags.index('--parallel.ep') + 1] != '1'
        assert plan['world_size'] == ranks and len(plan['ranks']) == ranks, name
        if '--pipeline.split' in flags:
            split = [float(x) for x in flags[flags.index('--pipeline.split') + 1].split(',')]
            assert plan['stage_layers'] == split, '%s: stages have %s layers' % (name, plan['stage_layers'])
        comm = json.load(open('run/comm.json'))
        groups = {(g['rank'], g['group']): g for g in comm['groups']}
        for rank, had in zip(plan['ranks'], counted['comm']['ranks']):
            for c in COLLS:
                rows = [k for g in rank['groups'] for k in g['calls'] if k['coll'] == c]
                calls, moved = sum(k['calls'] for k in rows), sum(k['moved'] for k in rows)
                what = '%s: rank %d: %s: the plan has %d calls and %d bytes, the run %s' % (name, rank['rank'], c, calls, moved, had[c])
                assert calls == had[c]['calls'], what
                assert moved == had[c]['bytes'] or (varies and c == 'all_to_all' and moved >= had[c]['bytes']), what
                varied += moved != had[c]['bytes']
            for g in rank['groups']:
                of = groups.pop((rank['rank'], g['group']))
                for c in COLLS:
                    rows = [k for k in g['calls'] if k['coll'] == c]
                    want = {'calls': sum(k['calls'] for k in rows), 'bytes': sum(k['moved'] for k in rows)}
                    got = of.get(c, {'calls': 0, 'bytes': 0})
                    what = '%s: rank %d, group %s: %s: the plan has %s, comm.json %s' % (name, rank['rank'], g['group'], c, want, got)
                    assert got['calls'] == want['calls'], what
                    assert got['bytes'] == want['bytes'] or (varies and c == 'all_to_all'), what
            memory = counted['memory']['ranks'][rank['rank']]
            for kind in ('param', 'grad', 'optim', 'act'):
                assert rank['memory'][kind] == memory[kind], '%s: rank %d: %s: %s, %s' % (name, rank['rank'], kind, rank['memory'], memory)
        assert not groups, '%s: groups of no plan: %s' % (name, list(groups))
        code, both, err = call('explain', 'run', '--json')
        assert code == 0, '%s: explain of the run ends with %d: %s' % (name, code, err)
        both = json.loads(both)
        assert both['counted_step'] == 4 and both['memory_compared'], name
        assert [r['groups'] and [dict(g, counted=None) for g in r['groups']] for r in both['ranks']] == [r['groups'] for r in plan['ranks']], name
        done += 1
    print('%d layouts of seeds %d to %d: every group of every rank is as planned, to the byte (%d refused by both; %d numbers of rows to '
          'experts below the most)' % (done, FIRST, seed - 1, refused, varied))


main()
