#!/bin/bash
# test_bench_zero.sh -- bench/zero: what it measures, with a model so small that times mean nothing, and what it says of given rows.
#
#   tests/test_bench_zero.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
sanitize=$(sed -n 's/^LOCKSTEP_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt") # whose own memory is resident, too
small='--n_layer 2 --d_model 64 --n_head 2 --vocab 512 --seq_len 64'
zero() {
    timeout -k 5 ${sanitize:+30}60 "$source_dir/bench/zero" "$@" >out 2>err
    code=$?
}
says() { grep -qF -- "$1" "${2:-out}" || { cat out err; return 1; }; }

zero --build "$build" --torch no --passes 2 --steps 2 --guard '3 0' --rows rows.csv -- $small
claim 'it measures: times may miss, nothing else' test $code -le 1
claim 'every contestant has a turn in each pass' test "$(wc -l <rows.csv)" = 13
claim 'what the guard costs is measured apart' grep -qE '^replica guard: an update of [0-9.]+ ms takes [0-9.]+ ms with it, -?[0-9.]+ ms more .*: -?[0-9.]+ % of a step, demand 0\.3 %' out
claim 'and the weights of DDP' test "$(grep -c "ddp's" out)" = 6
rotated() { [ "$(sed -nE 's/^pass ([12]) of 2: (.*[a-z0-9]) +[0-9.]+ ms.*/\1 \2/p' err | sed -n '1p;7p')" = $'1 ddp\n2 ddp, guarded' ] || { cat err; return 1; }; }
claim 'another one begins each pass' rotated
zero --build "$build" --torch no --passes 1 --steps 1 --only 'zero 2' --rows rows.csv -- $small
claim 'one of them' test "$(cut -d, -f2 rows.csv | tr '\n' ' ')" = 'contestant ddp zero 2 '

given() { # ms of zero 1, in passes where ddp takes 100, 200 and 300; its digest
    printf 'pass,contestant,ms,pss_mib,digest,steps_ms\n1,ddp,100,10,aa,1\n1,zero 1,%s,5,aa,1\n2,ddp,200,10,aa,1\n2,zero 1,%s,5,%s,1\n3,ddp,300,10,aa,1\n3,zero 1,%s,5,aa,1\n' \
        "$1" "$2" "$4" "$3" >given.csv
    zero --report given.csv
}
given 96 180 297 aa
claim 'the ratio of a pass is to the same pass, the median counts: 0.96, 0.90 and 0.99' says '     0.960     0.900 to  0.990    0.970'
claim 'within the demand: exit 0' test $code = 0
given 98 180 297 aa
claim 'more than the demand: exit 1' test $code = 1
claim 'and it says so' says "ddp's  missed"
given 96 180 297 bb
claim 'other weights than DDP in one pass: exit 1' test $code = 1
claim 'and it says so' says OTHERS

# resident memory: the formula of this model by hand, 2 layers of 49984, 512 + 64 rows of 64, 2 x 64: 136960 values
zero --build "$build" --memory -- $small
[ -n "$sanitize" ] || claim 'memory of 4 ranks is what the formula says' test $code = 0
claim 'values once' says 'param           0.5        0.5'
claim 'state once' says 'optim           1.0        1.0'
claim 'sums once, and on each rank gradients of two layers and of the root: 547840 + 4 (2 199936 + 131072)' says 'grad            2.5        '
mkdir -p more/bench
cat >more/bench/bench_gpt <<'SH'
#!/bin/bash
printf '1,1,9,1\n2,1,9,1\n'
printf 'held_mib,%s\n' param,${PARAM:-474.700} grad,${GRAD:-1279.954} optim,949.400 act,214.503 comm,0.534
echo "pss_mib,${PSS:-2974.2}"
SH
chmod +x more/bench/bench_gpt
zero --build more --memory
claim 'of GPT-2 124M' test $code = 0
for wrong in PARAM=475.4 PARAM=474.0 GRAD=1290 PSS=3020 PSS=2880; do
    missed() { (export "$wrong"; zero --build more --memory; says '  missed' && test $code = 1); }
    claim "$wrong is told" missed
done

# PyTorch's turns: made-up programs that take as long as is said here, each with its memory
mkdir -p fake/bench fake/peers
cat >fake/bench/bench_gpt <<'SH'
#!/bin/bash
ms=1000 pss=4000
for a; do case $a in --zero) ms=900 pss=3000 ;; esac; done
printf 'step,sync,ms,loss\n1,1,9999,1\n2,1,9999,1\n3,1,%s,1\ndigest,aa\npss_mib,%s\n' $ms $pss
SH
cat >fake/python <<SH
#!/bin/bash
exec python3 -B - "\$@" <<'PY'
import os, sys
sys.path.insert(0, '$source_dir/bench')
from pin import pin
cores = os.sched_getaffinity(0)
for rank in 0, 1:
    os.sched_setaffinity(0, cores)
    pin(0 if 'ONE_CORE' in os.environ else rank, 1)
shard = sys.argv[sys.argv.index('--shard') + 1]
plain = 'MALLOC_TRIM_THRESHOLD_' not in os.environ and 'LD_PRELOAD' not in os.environ
ms = {'fsdp': 2400, 'fsdp-keep': int(os.environ.get('KEPT_MS', 1990)), 'zero1': 1600}[shard]
for s in range(int(sys.argv[sys.argv.index('--steps') + 1])):
    print('%d,1,%d,1' % (s + 1, 7000 if s < 2 else ms))
print('pss_mib,%d' % ({'fsdp': 9000, 'fsdp-keep': int(os.environ.get('FSDP_MIB', 4500)), 'zero1': 4400}[shard] - 100 * plain))
PY
SH
printf '#!/bin/bash\necho "update_ms,90.000,92.000,${MORE:-2.900}"\n' >fake/bench/bench_guard
chmod +x fake/bench/bench_gpt fake/bench/bench_guard fake/python
printf '%s\n9.9.9+cpu\n\n' "$PWD/fake/python" >fake/peers/torch.newest
export BENCH_PROCESSOR='Made-up 9000' # no setting was tuned for it
zero --build fake --passes 4 --steps 1 --rows fake.csv
claim 'PyTorch has its turns in every third pass, and without settings once' \
    test "$(grep -c ',fully_shard,\|"fully_shard, kept whole",\|,ZeroRedundancyOptimizer,' fake.csv) $(grep -c ', as it comes"' fake.csv)" = '6 3'
claim 'the faster of fully_shard counts: 1990 / 900; its memory, 3000 / 4500, and 4400 without settings' \
    says 'FSDP2 / zero 3, copy host: 2.211 of the time (2.211 to 2.211), demand 2.2; zero 3, copy host, 0.667 of its memory, demand 0.7 (0.682 of it without settings)'
claim 'which is enough' fails_with 1 '' grep -q 'missed$' <(grep FSDP2 out)
claim 'of ZeroRedundancyOptimizer: 1600 / 900, 3000 / 4400' \
    says 'ZeroRedundancyOptimizer / zero 1: 1.778 of the time (1.778 to 1.778), demand 1.7; zero 1, 0.682 of its memory, demand 0.7'
claim 'the guard: 2.9 of 1000 ms' says 'replica guard: an update of 90.0 ms takes 92.0 ms with it, 2.90 ms more (median of pairs): 0.29 % of a step, demand 0.3 %'
claim 'every demand is met: exit 0' test $code = 0
MORE=3.100 zero --build fake --torch no --passes 1 --steps 1 --rows fake.csv
claim 'more than 0.3 % of a step for the guard: it says so' says '0.31 % of a step, demand 0.3 %  missed'
claim 'a dear guard: exit 1' test $code = 1
zero --build fake --torch no --passes 1 --steps 1 --only 'zero 1' --rows fake.csv
claim 'without the guarded contestant the guard is not measured' fails_with 1 '' grep guard out
KEPT_MS=1970 zero --build fake --passes 1 --steps 1 --rows fake.csv
claim 'less than the demand: it says so' says 'demand 0.7 (0.682 of it without settings)  missed'
claim 'and exit 1' test $code = 1
zero --report fake.csv
claim 'the same of kept rows' says 'demand 0.7 (0.682 of it without settings)  missed'
FSDP_MIB=4200 zero --build fake --passes 1 --steps 1 --rows fake.csv
claim 'more memory than the demand: it says so' says '0.714 of its memory, demand 0.7 (0.732 of it without settings)  missed'
ONE_CORE=1 zero --build fake --passes 1 --steps 1 --rows fake.csv
claim "PyTorch's ranks that are on one core do not count" grep -q '^failed: fully_shard of PyTorch 9.9.9, .*: ranks are not pinned' out
claim 'and the others are judged' test "$(grep -c ' ddp.s' out) $code" = '6 0'
rm fake/peers/torch.newest
zero --build fake --passes 1 --steps 1 --rows fake.csv
claim 'no PyTorch: that is told' says 'without PyTorch: bench/train/fetch --torch and bench/train/build fetch and find it'
zero --build fake --torch no --passes 1 --steps 1 --rows fake.csv
claim 'unless nobody asked' fails_with 1 '' grep PyTorch out
zero --only nobody
claim 'no such contestant' says 'no contestant beside ddp has such a name; there are "ddp, guarded", "zero 1"' err
zero --passes 0
claim 'no pass' says 'expected at least 1 of each' err
sed -i '$d' given.csv
zero --report given.csv
claim 'rows that are not all there' says 'expected a row of ddp and of each other contestant in every pass' err
zero --build "$build" --torch no --passes 1 -- --no-such-option
claim 'what bench_gpt refuses is passed on' says 'no-such-option' err
finish
