#!/bin/bash
# test_bench_parallel.sh -- bench/parallel: what it measures, how it compares losses, and what it says of given rows.
#
#   tests/test_bench_parallel.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
parallel() {
    timeout -k 5 60 "$source_dir/bench/parallel" "$@" >out 2>err
    code=$?
}
says() { grep -qF -- "$1" "${2:-out}" || { cat out err; return 1; }; }

# Made-up programs: they take as long as is said here, on the cores that they should be on, with losses that fall.
mkdir -p fake/bench fake/peers
cat >fake/ways.py <<SH
import os, sys
sys.path.insert(0, '$source_dir/bench')
from pin import pin
words = sys.argv[1:]
value = lambda name, usual: words[words.index(name) + 1] if name in words else usual
cores = os.sched_getaffinity(0)
ranks, threads = int(value('--ranks', '1')), int(value('--threads', '1'))
for rank in range(ranks):
    os.sched_setaffinity(0, cores)
    pin(0 if 'ONE_CORE' in os.environ else rank, threads)
ours = 'torch_parallel' not in words[0] and '--weights' not in words and words[0] != 'torch'
if ours:
    way = 'ep' if '--ep' in words else 'one'
else:
    way = 'torch ' + words[1]
ms = {'one': 1000, 'ep': int(os.environ.get('EP_MS', 1090)), 'torch one': 1600, 'torch ep': 1700}[way]
off = float(os.environ.get('OFF', 0)) if way == 'torch ep' else 0
with open('$PWD/seen', 'a') as f:
    f.write('%s,%s,%s\n' % (way, value('--batch', ''), os.environ.get('MALLOC_TRIM_THRESHOLD_', 'plain')))
for s in range(int(value('--steps', '5'))):
    print('%d,1,%d,%.7g' % (s + 1, 7000 if s < 2 else ms, 4 - 0.1 * s + off))
print('rank,0,%d,10\nrank,1,%d,20' % (ms, 3 * ms) if ours and ranks > 1 else '#')
print('pss_mib,100')
SH
cat >fake/lockstep <<SH
#!/bin/bash
exec python3 -B '$PWD/fake/ways.py' "\${@:9}"
SH
cat >fake/python <<SH
#!/bin/bash
exec python3 -B '$PWD/fake/ways.py' torch "\${@:2}"
SH
touch fake/peers/pin
chmod +x fake/lockstep fake/python
printf '%s\n9.9.9+cpu\n\n' "$PWD/fake/python" >fake/peers/torch.newest
export BENCH_PROCESSOR='Made-up 9000' # no setting was tuned for it

parallel --build fake --only '4 experts' --passes 2 --steps 1 --rows fake.csv
claim 'every contestant has a turn in each pass' test "$(wc -l <fake.csv)" = 13
claim 'the order reverses' test "$(sed 's/"[^"]*"//; 1d' fake.csv | cut -d, -f1,3,4 | tr '\n' ' ')" = \
    '1,ours,one 1,ours,ep 1,PyTorch,one 1,PyTorch,ep 1,ours,one 1,ours,ep 2,PyTorch,ep 2,PyTorch,one 2,ours,ep 2,ours,one 2,ours,ep 2,ours,one '
claim 'losses of a small model are compared first' says 'PyTorch, ep: losses of 5 steps differ by 0.0e+00 at most'
claim 'ranks of ep have half of the sequences each' test "$(grep '^torch ep\|^ep' seen | cut -d, -f1,2 | sort -u | tr '\n' ' ')" = 'ep,8 torch ep,8 '
claim 'PyTorch has its setting in turns' grep -q '^torch one,16,100000000000$' seen
claim 'tokens per second: 4096 in 1000 ms' says 'ours    one                     1 x 2    1000.0      4096'
claim 'ours to ours: 1090 / 1000' says 'ours, ep / ours, one: 1.090 (each pass: 1.090 1.090), target: at most 1.10'
claim 'but where a router may choose one rank more often' says 'ours, ep / ours, one: 1.090 (each pass: 1.090 1.090), target: none'
claim 'the busiest rank computes 3 of 4, of 20 of 30 operations' says \
    'ours, ep: the busiest rank computes 1.500 times as long as the mean, by its operations 1.333 times'
claim "PyTorch's to ours: 1600 / 1000" says 'PyTorch, one / ours, one: 1.600 (each pass: 1.600 1.600), target: at least 1.50'
claim 'all targets are met: exit 0' test $code = 0
EP_MS=1110 parallel --build fake --only '4 experts' --passes 1 --steps 1 --rows fake.csv
claim 'a target that is missed: it says so' says 'target: at most 1.10  missed'
claim 'and exit 1' test $code = 1
parallel --report fake.csv
claim 'the same of rows that were saved' says 'target: at most 1.10  missed'
OFF=0.01 parallel --build fake --only '4 experts' --passes 1 --steps 1 --rows fake.csv
claim 'other losses: not the same work' says 'PyTorch, ep: losses of 5 steps differ by 2.8e-03 at most: NOT THE SAME WORK'
claim 'it has no turn' fails_with 1 '' grep -q ',PyTorch,ep,' fake.csv
claim 'and exit 1' test $code = 1
ONE_CORE=1 parallel --build fake --only '4 experts' --passes 1 --steps 1 --torch no --rows fake.csv
claim 'ranks that are on one core do not count' says 'ours, ep failed: ranks are not pinned'
claim 'and exit 1' test $code = 1
rm fake/peers/torch.newest
parallel --build fake --only '4 experts' --passes 1 --steps 1 --rows fake.csv
claim 'no PyTorch: that is told' says 'without PyTorch: bench/train/fetch --torch and bench/train/build fetch and find it'
claim 'and ours is judged' test $code = 0

given() { # work, then who,name,ms of a turn each
    local work=$1 turn
    shift
    echo 'pass,work,who,name,ms,pss_mib,others,busiest,most_work,gflop,peak,bubble,replayed,setting,steps_ms'
    for turn; do echo "1,\"$work\",${turn%,*},${turn##*,},100,0,${BUSIEST:-},1.2,${GFLOP:-},200,${BUBBLE:-,},,1"; done
}
given 'experts: 6 x 384, 8 experts, B16 T256' ours,one,100 'PyTorch,"transformers, eager",250' 'PyTorch,"transformers, grouped_mm",190' >given.csv
parallel --report given.csv
claim 'the faster of two forms counts: 190 / 100' says \
    'PyTorch, transformers, eager or PyTorch, transformers, grouped_mm / ours, one: 1.900 (each pass: 1.900), target: at least 2.00  missed'
GFLOP=18 given 'experts: 6 x 384, 8 experts, B16 T256' ours,one,100 'PyTorch,"transformers, eager",190' >given.csv
parallel --report given.csv
claim '18e9 operations at 200e9 in a second take 90 ms: 190 / 90' says '1.900), target: at least 2.00; at the peak of the cores 2.11  missed'
GFLOP=20 given 'experts: 6 x 384, 8 experts, B16 T256' ours,one,100 'PyTorch,"transformers, eager",190' >given.csv
parallel --report given.csv
claim 'a target that no step can reach' says '1.900), target: at least 2.00; at the peak of the cores 1.90  missed, and beyond the roofline'
claim 'is missed all the same' test $code = 1
given 'stages: 124M, 4 micro-batches of B1 T64' ours,gpipe,150 ours,1f1b,120 PyTorch,gpipe,210 PyTorch,1f1b,240 >given.csv
parallel --report given.csv
claim 'a schedule with the same one: 210 / 150' says 'PyTorch, gpipe / ours, gpipe: 1.400 (each pass: 1.400), target: at least 1.50  missed'
claim 'the fastest with the fastest: 210 / 120' says 'ours, zb-v: 1.750 (each pass: 1.750), target: at least 1.50'
BUBBLE=0.25,0.21 given 'stages: 124M, 8 micro-batches of B1 T64' ours,1f1b,150 >given.csv
parallel --report given.csv
claim 'a bubble that its schedule does not explain' says \
    "ours, 1f1b: 25.0 % of the ranks' time is idle, of the schedule with the measured times of its stages 21.0 %: +4.0 points (each pass: +4.0), target: at most 3  missed"
BUBBLE=0.23,0.21 given 'stages: 124M, 8 micro-batches of B1 T64' ours,1f1b,150 >given.csv
parallel --report given.csv
claim 'and one that it does' test $code = 0
given 'layers: 124M, B4 T64' ours,one,100 ours,tp,104 'ours,"tp, sp",107' >given.csv
parallel --report given.csv
claim 'sequence parallelism is compared with tp' says 'ours, tp, sp / ours, tp: 1.029 (each pass: 1.029), target: at most 1.02  missed'
claim 'tp is within its target' says 'ours, tp / ours, one: 1.040 (each pass: 1.040), target: at most 1.05'
BUSIEST=1.06 given 'sequences: 6 x 384, B1 T4096' ours,one,100 ours,ring,104 >given.csv
parallel --report given.csv
claim 'a ring whose ranks are not even' says 'times as long as the mean, by its operations 1.200 times, target: at most 1.05  missed'
claim 'exit 1' test $code = 1
given 'layers: 124M, B4 T64' ours,nobody,100 >given.csv
parallel --report given.csv
claim 'an unknown contestant' says 'no turn of ours: nobody' err
parallel --only nobody
claim 'no such work' says 'no work has such a name; there are "layers: 124M, B4 T64"' err
parallel --passes 0
claim 'no pass' says 'expected at least 1 of each' err
finish
