#!/bin/bash
# lockstep bench from outside: nccl-tests' table and JSON, right results, bad input.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
unset NCCL_TESTS_SPLIT NCCL_TESTS_SPLIT_MASK LOCKSTEP_FAULT RANK WORLD_SIZE
bench() { timeout 60 "$build/lockstep" bench "$@"; }
quick() { bench "$@" -n 2 -w 1; }
rows() { grep -v '^#' "$1"; }

# --- the table
quick all_reduce --ranks 2 -b 8 -e 64K -f 8 -J a.json >table || exit 1
claim 'rows have the columns of nccl-tests' test "$(rows table | grep -vcE \
    '^ *[0-9]+  +[0-9]+ {5}float {5}sum {6}-1(  [ 0-9.]{7}  [ 0-9.]{6}  [ 0-9.]{6} {7}0){2}$')" = 0
claim 'and their widths' test "$(rows table | awk '{ print length }' | sort -u)" = $((12 + 2 + 12 + 2 + 8 + 2 + 6 + 2 + 6 + 2 * (9 + 8 + 8 + 8)))
claim 'sizes go by the factor' test "$(rows table | awk '{ printf "%s ", $1 }')" = '8 64 512 4096 32768 '
claim 'counts are elements' test "$(rows table | awk '$2 * 4 != $1' | wc -l)" = 0
claim 'every other line is a comment' test "$(grep -vcE '^#|^ ' table)" = 0
claim 'the heads stand over their columns' awk '
    /^# +size/ { h = $0; sub(/^#/, " ", h) }
    /^ +[0-9]/ { for (i = 1; i <= length(h); i++)      # a head ends where its numbers end
        if (substr(h, i, 1) != " " && (i == length(h) || substr(h, i + 1, 1) == " ") && substr($0, i, 1) == " ") exit 1
        seen = 1 }
    END { exit !seen }' table
claim 'the footer is there' awk '/^# Out of bounds values : 0 OK$/ { a = 1 } /^# Avg bus bandwidth    : [0-9.e+-]+$/ { b = 1 }
    /^# Collective test concluded: all_reduce$/ { c = 1 } END { exit !(a && b && c) }' table
claim 'one line a rank' test "$(grep -cE '^#  Rank +[01] Group +0 Pid +[0-9]+ on +[^ ]+ device +[0-9]+ \[shm\]' table)" = 2
claim 'algbw and busbw follow from size and time' awk '!/^#/ { for (k = 6; k <= 10; k += 4) if ($k > 0.5) {
        want = $1 / $k / 1000; d = $(k + 1) - want; if (d < 0) d = -d
        if (d > 0.006 + want * 0.006 / $k || $(k + 1) != $(k + 2)) { print $0; exit 1 } } }' table # digits that are printed

quick all_gather -g 4 -b 64 -e 4096 -f 4 -d bfloat16 >table || exit 1
claim 'all_gather counts a share, and sizes the whole' test "$(rows table | awk '{ printf "%s:%s:%s ", $1, $2, $4 }')" = \
    '64:8:none 256:32:none 1024:128:none 4096:512:none '
claim 'its bus bandwidth is (n-1)/n' awk '!/^#/ && $7 > 0.2 { d = $8 - 0.75 * $7; if (d > 0.01 || d < -0.01) exit 1 }' table
quick reduce_scatter -g 3 -b 12 -e 1K -i 500 >table || exit 1
claim 'steps may be bytes; shares are whole elements' test "$(rows table | awk '{ printf "%s:%s ", $1, $2 }')" = '12:1 504:42 1008:84 '
claim 'broadcast names its root' test "$(quick broadcast -g 3 -r 2 -b 64 -e 64 | rows - | awk '{ print $5 }')" = 2
quick sendrecv -g 3 -b 64 -e 64 >table || exit 1
claim 'sendrecv has no in-place result to check' test "$(rows table | awk '{ print $9, $13 }')" = '0 N/A'
claim 'a barrier is one row of nothing' test "$(quick barrier | rows - | awk '{ print $1, $2, $7 }')" = '0 0 0.00'
claim '-c 0 checks nothing and says so' test "$(quick all_reduce -b 64 -e 64 -c 0 | rows - | awk '{ print $9, $13 }')" = 'N/A N/A'
claim 'K is 1024' test "$(quick all_reduce -b 1K -e 1K | rows - | awk '{ print $1 }')" = 1024
quick all_reduce -b 64 -e 64 -I 1 -S 1 >table || exit 1
claim '-I adds four columns a placement, -S the time' test "$(rows table | awk '{ print NF }')" = $((13 + 8 + 2))

# --- right everywhere
for coll in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all sendrecv; do
    for how in '--threads' '--transport tcp -r 1' '--private --algo ring -m 3' '--touch 1 -z 1 -u 3' '-M -g 2' '--counts uneven' \
        '--counts uneven --transport tcp -m 2 -r 2'; do
        case "$coll $how" in # what the collective has no use for is refused
        all_reduce*uneven* | broadcast*uneven* | reduce\ *uneven* | sendrecv*uneven*) refusal="--counts belongs to collectives of shares, here is $coll" ;;
        sendrecv*ring*) refusal='--algo ring: sendrecv is messages' ;;
        broadcast*ring* | reduce\ *ring* | gather*ring* | scatter*ring* | all_to_all*ring*) refusal="--algo ring does not serve $coll: expected one of" ;;
        *) refusal='' ;;
        esac
        # shellcheck disable=SC2086
        if [ "$refusal" ]; then
            claim "$coll $how is refused" fails_with 64 "$refusal" quick $coll -g 3 -b 8 -e 16K -f 16 $how
            continue
        fi
        # shellcheck disable=SC2086
        claim "$coll $how: nothing is wrong" has_line '# Out of bounds values : 0 OK' quick $coll -g 3 -b 8 -e 16K -f 16 -d all -o all $how
    done
done
claim 'an element more or less is a share of its own' test "$(quick gather -g 4 -b 48 -e 48 --counts uneven | rows - | awk '{ print $1, $2, $5, $9, $13 }')" = '48 3 0 0 0'
claim 'sums that travel as bf16 are right' has_line '# Out of bounds values : 0 OK' quick all_reduce -g 3 -b 64K -e 64K --transport tcp --wire bf16
for coll in all_reduce reduce_scatter; do
    claim "$coll of values that travel as bf16: bytes as said" \
        has_line '# Bytes on each rank   : 2 of 2 as the formula says OK' quick $coll -g 3 -b 64K -e 64K --transport tcp --wire bf16 --count
done
claim 'there and back between two ranks is right too' has_line '# Out of bounds values : 0 OK' quick sendrecv --ping_pong -b 8 -e 16K -f 16 -d all
claim 'ranks may measure in groups' test "$(NCCL_TESTS_SPLIT='MOD 2' quick all_reduce -g 4 -b 64 -e 64 |
    awk '/^#  Rank/ { printf "%s ", $5 }')" = '0 1 0 1 '
claim 'as with a mask' test "$(NCCL_TESTS_SPLIT_MASK=0x2 quick all_reduce -g 4 -b 64 -e 64 | awk '/^#  Rank/ { printf "%s ", $5 }')" = '0 0 2 2 '
claim 'a launcher may start the ranks' test "$("$build/lockstep" run --nproc-per-node 3 -- "$build/lockstep" bench all_reduce -b 64 -e 64 -n 2 |
    grep -c '^#  Rank')" = 3

# --- rows for programs
quick all_reduce -b 8 -e 2K -f 16 --csv --touch 1 --place in --trials 3 >rows.csv || exit 1
claim '--csv prints one head and one row a size' test "$(cut -d, -f1-7 rows.csv | tr '\n' ' ')" = \
    'program,collective,place,memory,ranks,bytes,iterations lockstep,all_reduce,in,registered,2,8,2 lockstep,all_reduce,in,registered,2,128,2 lockstep,all_reduce,in,registered,2,2048,2 '
claim 'every row has a time of an operation, and is right' awk -F, 'NR > 1 && !($8 > 0 && $8 <= $9 && $10 > 0 && NF == 13 && $13 == 0) { exit 1 }' rows.csv
claim 'trials may be as long as asked for' test "$(bench all_reduce -b 8 -e 8 --csv --trial_time 1ms --place out -M | awk -F, 'NR == 2 { print $3, $4, ($7 >= 2) }')" = 'out private 1'
quick all_gather -b 64 -e 64 --place out >table || exit 1
claim 'a placement that is not measured keeps its columns' test "$(rows table | awk '{ print $9, $10, $13, length }')" = "0 N/A N/A 118"

# --- who carries it out
runs() { quick "$@" -b 1K -e 64K -f 64 --place in 2>&1 | sed -nE 's/^# from [0-9]+ bytes: in-place by ([^ ,]+).*/\1/p' | sort -u; }
algos() { "$build/lockstep" coll --list | awk -v c="$1" '{ n = split($0, w, /[ ,]+/); for (i = 2; i <= n; i++) if (w[i] == c) print $1 }'; }
names() { "$build/lockstep" coll --list | awk '{ print $1 }'; }
for coll in all_reduce reduce_scatter all_gather broadcast reduce gather scatter all_to_all barrier; do
    for algo in $(names); do
        if ! algos $coll | grep -qx "$algo"; then
            claim "$coll by $algo is refused" fails_with 64 "--algo $algo does not serve $coll: expected one of $(algos $coll | head -1)" \
                quick $coll --algo "$algo" -e 8
        elif [ $coll = barrier ]; then
            claim "$coll by $algo is by $algo" has_line "in-place by $algo" quick $coll --algo "$algo"
        else
            claim "$coll by $algo is by $algo" test "$(runs $coll --algo "$algo")" = "$algo"
        fi
    done
done
claim 'without a wish the table says who it was' grep -qE '^[a-z_]+$' <<<"$(runs all_reduce)"
claim 'fold needs memory that peers reach' fails_with 64 'which --private forbids: expected one of ring' quick all_reduce -e 8 -M --algo fold
claim 'or is refused where another would run' fails_with 64 'cannot carry out all_reduce of 8 bytes over 2 ranks here, direct would' \
    quick all_reduce -e 8 --transport tcp --algo fold
claim 'bruck has no uneven form' fails_with 64 'pairwise would: expected one of direct' quick all_to_all -b 1K -e 1K --algo bruck --counts uneven
claim 'an algorithm of another collective is refused' fails_with 64 'does not serve all_reduce' quick all_reduce -e 8 --algo broadcast=chain
claim 'checksums are of tcp' fails_with 64 '--checksums belongs to --transport tcp and mixed, here is shm' quick all_reduce -e 8 --checksums false
claim 'bf16 on the wire is for gradients' fails_with 64 '--wire belongs to all_reduce and reduce_scatter, here is reduce' quick reduce -e 8 --transport tcp --wire bf16
claim 'a skip needs single times' fails_with 64 '--per_iter_skip belongs to --per_iter_timing' quick all_reduce -e 8 -K 1
claim 'rows for a program have no counts' fails_with 64 '--count belongs to the table and its JSON file, here is --csv' quick all_reduce -e 8 --csv --count
claim 'sizes grow by one of two' fails_with 64 'sizes grow by one of them' quick all_reduce -e 8 -i 8 -f 4

# --- bytes, and the line through the rows
for how in '' '--transport tcp' '--algo ring' '--transport tcp --algo halving_doubling -g 3' '--transport tcp --algo master -g 5' '-M -g 4'; do
    # shellcheck disable=SC2086
    claim "bytes are those of the formula: $how" has_line '# Bytes on each rank   : 10 of 10 as the formula says OK' \
        quick all_reduce -b 8 -e 2M -f 22 --count $how
done
for coll in reduce_scatter all_gather broadcast reduce gather scatter all_to_all; do
    claim "and of $coll" has_line '# Bytes on each rank   : 12 of 12 as the formula says OK' quick $coll -g 3 -b 12 -e 2M -f 11 --count -r 2
    case $coll in broadcast | reduce) continue ;; esac
    claim "in uneven shares" has_line '# Bytes on each rank   : 8 of 8 as the formula says OK' quick $coll -g 4 -b 16 -e 90K -f 16 --count \
        --transport tcp --counts uneven
done
quick all_reduce -g 4 -b 1M -e 1M --transport tcp --algo ring --count --place in >table || exit 1
claim 'a ring sends 2 (n-1)/n of the vector' grep -qE '^# count +in-place  ring +rank all +1572864 +1572864  equal$' table
quick all_reduce -g 4 -b 1M -e 1M --transport tcp --algo master --count --place in >table || exit 1
claim 'a master sends it n-1 times' grep -qE '^# count +in-place  master +rank +0 +3145728 +3145728  equal$' table
quick all_reduce -b 8 -e 2M -f 8 --transport tcp --algo ring --fit --place in -J fit.json >table || exit 1
claim '--fit names alpha and beta' grep -qE '^#   alpha [0-9.]+ us a round, beta [0-9.]+ ns a byte' table
claim 'and where latency ends' test "$(grep -cE '^# +[0-9]+ +2 .*(latency|bandwidth)$' table)" = 7
claim 'rows of one size are no line' has_line '# no fit in place by' quick all_reduce -b 8 -e 8 --fit --place in

# --- wrong shows. Which of the messages is the one that is checked depends on what the program sends before it.
caught=0
for nth in 3 4 5 6 7 8; do
    out=$(LOCKSTEP_FAULT=corrupt@1:$nth bench all_reduce --transport fault:shm --algo ring -b 1K -e 1K -n 1 -w 0 2>err)
    status=$?
    if grep -qE '^ +1024 .* [1-9][0-9]*( |$)' <<<"$out" && grep -q '^# Out of bounds values : [1-9][0-9]* FAILED$' <<<"$out" &&
        [ $status = 70 ] && grep -q 'elements of results were wrong' err; then caught=$((caught + 1)); fi
done
claim 'a bit flipped on the way is counted as wrong, and the status says so' test $caught -ge 2

# --- JSON
if python3 -c 'import json' 2>/dev/null; then
    quick all_reduce -b 1K -e 64K -f 8 -o all -I 1 -K 1 -J b.json >table || exit 1
    cat >read.py <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
rows = [l.split() for l in open(sys.argv[2]) if l[0] != '#']
for key in 'version start_time args env config devices results out_of_bounds average_bus_bandwidth end_time'.split():
    assert key in d, key
assert all(e.startswith(('LOCKSTEP_', 'OMP_', 'SLURM_')) and 'SECRET' not in e for e in d['env']), d['env']
assert d['args'][:2] == ['bench', 'all_reduce'], d['args']
assert d['config']['iterations'] == 2 and d['config']['validation'] == 1 and len(d['config']['devices']) == 2
assert len(rows) == len(d['results']) > 0
shown = 0
for row, r in zip(rows, d['results']):
    assert [row[0], row[1], row[2], row[3], row[4]] == [str(r[k]) for k in ('size', 'count', 'type', 'redop', 'root')], row
    wide = len(row) > 13
    for at, key in ((5, 'out_of_place'), (13 if wide else 9, 'in_place')):
        x = r[key]
        assert abs(float(row[at]) - x['time']) <= 0.5 and float(row[at + 3]) == x['nwrong'] == 0, (row, x)
        assert abs(x['alg_bw'] - r['size'] / x['time'] / 1e3) <= 1e-9 * x['alg_bw']
        shown += x['bus_bw']
        if wide:
            p = r[key + '_per_iter']
            times, ranks = p['times_us'], p['per_process_max_times_us']
            assert len(ranks) == 2 and times == [max(t) for t in zip(*ranks)], p
            assert p['skipped_iterations'] == 1 and p['min_us'] == p['max_us'] == p['p99_us'] == times[1]
    assert r['experiment_name'] == 'all_reduce' and r['actual_iterations'] == 2
assert abs(shown / 2 / len(rows) - d['average_bus_bandwidth']['bandwidth']) < 1e-9 * shown
assert d['out_of_bounds'] == {'count': 0, 'okay': True}
PY
    quick all_reduce --ranks 2 -b 8 -e 64K -f 8 -J c.json >plain || exit 1
    quick all_reduce -g 3 -b 1K -e 64K -f 8 --transport tcp --algo ring --count --fit -J d.json >/dev/null || exit 1
    claim 'bytes and the line are in it' python3 - d.json <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
for r in d['results']:
    for key in ('out_of_place_count', 'in_place_count'):
        c = r[key]
        assert c['algorithm'] == 'ring' and c['rounds'] == 4 and c['measured'] == c['formula'] and len(c['formula']) == 3, c
        assert sum(c['formula']) == 4 * r['size'], c
assert [f['in_place'] for f in d['fit']] == [False, True] and all(f['rows'] == 3 and f['rms'] >= 0 for f in d['fit']), d['fit']
PY
    claim 'JSON says what the table says' python3 read.py c.json plain
    claim 'with single iterations too' python3 read.py b.json table
fi
claim 'a file that exists is left alone' sh -c "cp a.json before && '$build/lockstep' bench barrier -n 1 -J a.json | grep -q 'JSON output to a.json.0' && cmp a.json before"
claim 'a place that cannot be written ends the run at once' fails_with 74 'no/such/x.json: cannot be written' quick barrier -J no/such/x.json

# --- bad input
claim 'a wrong flag is told the nearest' fails_with 64 "did you mean '--minbytes'" bench all_reduce --minbyte 8
claim 'so is a wrong collective' fails_with 64 "did you mean 'all_reduce'" bench all_redcue
claim 'and a wrong algorithm' fails_with 64 "did you mean 'ring'" bench all_reduce --algo rnig
claim 'and a wrong transport' fails_with 64 "did you mean 'shm'" bench all_reduce --transport shmm
claim 'a collective is needed' fails_with 64 'which collective' bench
claim 'one is enough' fails_with 64 "'broadcast' is a second one" bench all_reduce broadcast
claim '--ping_pong is for sendrecv' fails_with 64 'a way to do sendrecv' bench all_reduce --ping_pong
claim 'and for two' fails_with 64 'between 2 ranks, here are 3' bench sendrecv --ping_pong -g 3
claim 'single operations are timed in one trial' fails_with 64 'one trial' bench all_reduce -I 1 --trials 2
claim 'a reduction has its names' fails_with 64 'sum|prod|max|min|avg' bench all_reduce -o mean
claim 'an integer has no average' fails_with 64 'avg of int32 is not defined' bench all_reduce -d int32 -o avg
claim 'least is not more than most' fails_with 64 'minbytes 2048 is more than --maxbytes 1024' bench all_reduce -b 2K -e 1K
claim 'sizes are sizes' fails_with 64 'minbytes' bench all_reduce -b 8MB
claim 'the root is a rank' fails_with 64 '--root 2 of 2 ranks: expected 0 to 1' bench broadcast -r 2
claim 'ranks have a limit' fails_with 64 '1..256' bench all_reduce --ranks 257
claim 'sendrecv needs two' fails_with 64 'at least 2 ranks' bench sendrecv --ranks 1
claim 'a split has its words' fails_with 64 "NCCL_TESTS_SPLIT is 'XOR 1'" env NCCL_TESTS_SPLIT='XOR 1' "$build/lockstep" bench all_reduce --ranks 1
claim 'too large for the machine is said before it is tried' fails_with 71 'no-memory' bench all_reduce --ranks 1 -b 8T -e 8T
claim '--help shows an example' has_line 'lockstep bench all_reduce --ranks 2 -b 8 -e 128M -f 2' bench --help
finish
