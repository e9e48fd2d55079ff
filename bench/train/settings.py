"""settings.py -- the PyTorchs that there are, and what each runs with: malloc, OpenMP, BLAS. Used by bench/train/compare, which finds
the best for a kind of processor (--tune) and keeps them in settings.json, and by bench/zero and bench/parallel."""
import collections
import glob
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, ROOT + '/bench')
import rules  # noqa: E402

LIB = '/usr/lib/x86_64-linux-gnu/'
KEEP = {'MALLOC_MMAP_MAX_': '0', 'MALLOC_TRIM_THRESHOLD_': '100000000000', 'MALLOC_TOP_PAD_': '268435456'}  # never give back
PASSIVE = {'OMP_WAIT_POLICY': 'PASSIVE'}
HUGE = {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
SETTINGS = collections.OrderedDict([
    ('as it comes', {}),
    ('malloc', KEEP),
    ('malloc, passive', dict(KEEP, **PASSIVE)),
    ('malloc, huge pages', dict(KEEP, **HUGE)),
    ('malloc, huge pages, passive', dict(KEEP, **HUGE, **PASSIVE)),
    ('jemalloc', {'LD_PRELOAD': LIB + 'libjemalloc.so.2',
                  'MALLOC_CONF': 'oversize_threshold:0,background_thread:false,metadata_thp:always,thp:always,dirty_decay_ms:-1,muzzy_decay_ms:-1'}),
    ('tcmalloc', {'LD_PRELOAD': LIB + 'libtcmalloc_minimal.so.4', 'TCMALLOC_RELEASE_RATE': '0'}),
    ('BLIS, malloc, huge pages, passive', dict(KEEP, **HUGE, **PASSIVE, LD_PRELOAD=LIB + 'blis-openmp/libblas.so.3')),
    ('BLIS, malloc, huge pages', dict(KEEP, **HUGE, LD_PRELOAD=LIB + 'blis-openmp/libblas.so.3')),
])
USUAL = 'malloc, huge pages, passive'
PLAIN = 'as it comes'
FILE = HERE + '/settings.json'


def there(setting):
    return os.path.exists(SETTINGS[setting].get('LD_PRELOAD', '/'))


# --- PyTorchs: bench/train/build found them ------------------------------------------------------------------------


def torches(peers):
    """Each a (python, version, environment), by a file in the folder `peers`; and reasons why others are missing."""
    found, missing = [], []
    for f in sorted(glob.glob(peers + '/torch.*')):
        if f.endswith('.missing'):
            missing.append('PyTorch: ' + open(f).read().strip())
            continue
        python, version, path = (open(f).read().split('\n') + ['', ''])[:3]
        env = {'PYTHONPATH': path} if path else {}
        found.append((python, version.split('+')[0], dict(env, TORCHINDUCTOR_CACHE_DIR=ROOT + '/.cache/peers/inductor')))
    return found, missing


def form_of(name):
    """A contestant's name without its version: what settings are kept for."""
    return re.sub(r'^PyTorch 1\.13[^ ]*', 'PyTorch 1.13', re.sub(r'^PyTorch [2-9][^ ]*', 'newest PyTorch', name))


# --- what is kept ----------------------------------------------------------------------------------------------------


def kept_ones():
    try:
        return json.load(open(FILE))
    except OSError:
        return {}


def keep(name, work, setting, options):
    kept = kept_ones()
    kept.setdefault(rules.processor(), {})['%s | %s' % (form_of(name), work)] = dict(setting=setting, **({'options': options} if options else {}))
    with open(FILE, 'w') as f:
        json.dump(kept, f, indent=1, sort_keys=True)
        f.write('\n')


def best(name, family, work, gpt, kept):
    """(setting, options, whether it was tuned on this kind of processor) of a PyTorch at a work: the one that --tune found here,
    or else the one that was found here for most other works of that PyTorch, or else the one found on another processor."""
    key, mine = '%s | %s' % (form_of(name), work), rules.processor()
    if key not in kept.get(mine, {}) and gpt:
        won = collections.Counter(c['setting'] for k, c in sorted(kept.get(mine, {}).items()) if k.startswith(family) and 'MLP' not in k)
        for setting, _ in won.most_common():
            if there(setting):
                return setting, '', False
    for of in [mine] + sorted(k for k in kept if k != mine):
        chosen = kept.get(of, {}).get(key)
        if chosen and there(chosen['setting']):
            return chosen['setting'], chosen.get('options', ''), of == mine
    return USUAL if there(USUAL) else 'malloc', '', False
