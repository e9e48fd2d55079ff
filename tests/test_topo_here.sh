#!/bin/bash
# test_topo_here.sh -- this machine as a topology, and others that hwloc reads in its place: descriptions whose levels follow from their
# numbers, a file in hwloc's XML that this test writes, and what Python finds of the real machine.
#
#   tests/test_topo_here.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
unset HWLOC_SYNTHETIC HWLOC_XMLFILE
export LOCKSTEP_CALIBRATION=none LOCKSTEP_PEAK="$tmp/peak.json"
echo '{"lockstep_peak": 1, "host": "here", "peaks": [{"dtype": "float", "threads": 1, "gflops_per_thread": 64}]}' >peak.json

here() { timeout -k 5 60 "$lockstep" topo local --json >here.json; }
json() { python3 -c "import json, os, re, sys; j = json.load(open('here.json')); levels = [(l['name'], l['count']) for l in j.get('levels', [])]
assert $1, (j.get('devices'), j.get('device'), levels)"; }

# --- descriptions: what is inside what, from the machine down. Levels are the parts of which there are several, from the inside out;
# of parts that are the same threads the largest.
expected() { python3 -c "
import sys
parts = [(w.split(':')[0], int(w.split(':')[1])) for w in sys.argv[1].split()]
names = {'package': 'socket', 'numa': 'numa', 'l3': 'l3', 'core': 'core'}
n, units = 1, []
for name, count in parts:
    n *= count
    if name in names and n > 1 and all(m != n for _, m in units): units.append((names[name], n))
levels, below = [], n
for name, m in reversed(units):
    if m < n: levels.append((name, below // m)); below = m
print(n, levels + [('machine', below)])" "$1"; }
for what in 'package:2 l3:1 core:8 pu:2' 'package:2 numa:2 l3:2 core:4 pu:1' 'package:4 core:6 pu:1' 'core:6 pu:1' 'numa:3 l3:1 core:2 pu:4' \
    'package:1 l3:8 core:8 pu:1' 'package:8 numa:1 l3:12 core:4 pu:2'; do
    HWLOC_SYNTHETIC=$what here
    read -r devices levels < <(expected "$what")
    claim "$what: $devices devices" json "j['devices'] == $devices"
    claim "$what: levels $levels" json "levels == $levels"
    claim "$what: units have a port per thread" json "all(l['ports'] == (1 if i == 0 else __import__('math').prod(m['count'] for m in j['levels'][:i]))
        for i, l in enumerate(j['levels']))"
done
HWLOC_SYNTHETIC='package:2 core:8 pu:2' here
claim 'two threads of a core share its units' json "j['device']['name'] == 'thread' and j['device']['flops_per_s'] == 32e9"
HWLOC_SYNTHETIC='package:2 core:8 pu:1' here
claim 'one has them alone' json "j['device']['name'] == 'core' and j['device']['flops_per_s'] == 64e9"
HWLOC_SYNTHETIC='numa:2(memory=8589934592) core:4 pu:1' here
claim 'memory is that of the description' json "j['device']['memory_bytes'] == 2 * 2**33 / 8"

# --- a file: two sockets; one has two caches of three cores, the other a cache of six; and a node of memory without cores
python3 - >machine.xml <<'PY'
number = [0]
def obj(kind, cpus, inside='', nodes='0x1', more=''):
    number[0] += 1
    mask = hex(sum(1 << c for c in cpus)) if cpus else '0x0'
    return (f'<object type="{kind}" os_index="{min(cpus) if cpus else 1}" gp_index="{number[0]}" cpuset="{mask}" complete_cpuset="{mask}" '
            f'nodeset="{nodes}" complete_nodeset="{nodes}" {more}>{inside}</object>')
def cores(cpus): return ''.join(obj('Core', [c], obj('PU', [c])) for c in cpus)
def cache(cpus): return obj('L3Cache', cpus, cores(cpus), more='cache_size="33554432" depth="3" cache_linesize="64" cache_associativity="16" cache_type="0"')
def memory(cpus, node, n): return obj('NUMANode', cpus, nodes=node, more=f'local_memory="{n}"')
sockets = obj('Package', range(6), cache([0, 1, 2]) + cache([3, 4, 5])) + obj('Package', range(6, 12), cache(range(6, 12)))
machine = obj('Machine', range(12), memory(range(12), '0x1', 48 << 30) + sockets, more='allowed_cpuset="0xfff" allowed_nodeset="0x1"')
print('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">' + machine + '</topology>')
PY
HWLOC_XMLFILE=machine.xml here
claim 'a file: its cores' json "j['devices'] == 12 and j['device'] == {'name': 'core', 'flops_per_s': 64e9, 'memory_bytes': (48 << 30) / 12}"
claim 'uneven caches are no level' json "levels == [('socket', 6), ('machine', 2)]"

for what in SYNTHETIC=core:x XMLFILE=absent.xml XMLFILE=peak.json; do
    claim "$what is refused" fails_with 74 "HWLOC_${what%%=*}" env "HWLOC_$what" "$lockstep" topo local
done

# --- the real machine
here
claim 'at most as many devices as this process has CPUs' json "1 <= j['devices'] <= len(os.sched_getaffinity(0))"
claim 'one CPU' test "$(taskset -c "$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))')" "$lockstep" topo local --json |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["devices"])')" = 1
"$lockstep" doctor --json >here.json
claim 'NUMA nodes and caches are those of /sys' json "(lambda sys: j['numa_nodes'] == sum(any(os.path.exists(f'{sys}node/{d}/cpu{c}') for c in os.sched_getaffinity(0)) for d in os.listdir(sys + 'node') if re.fullmatch(r'node\d+', d))
    and all(j['caches_bytes'].get(name) == 1024 * int(open(f'{sys}cpu/cpu0/cache/index{i}/size').read()[:-2])
        for i, name in ((0, 'L1d'), (2, 'L2'), (3, 'L3')) if os.path.exists(f'{sys}cpu/cpu0/cache/index{i}')))('/sys/devices/system/')"
claim 'cores and sockets are those of /proc/cpuinfo' json "(lambda cpus: j['threads'] <= len(cpus) and
    (j['threads'] < len(cpus) or (j['sockets'], j['cores']) == (len({c[0] for c in cpus}), len(set(cpus)))))(
    list(zip(re.findall(r'physical id\s*: (\d+)', t := open('/proc/cpuinfo').read()), re.findall(r'core id\s*: (\d+)', t))))"
finish
