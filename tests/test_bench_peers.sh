#!/bin/bash
# bench/peers: the same method and columns for every contestant, and a table that keeps the rules of docs/performance.md.
# Contestants here are made up, and always take the same time.
#
#   tests/test_bench_peers.sh BUILD        LOCKSTEP_TEST_LONG=1: two more runs, of the whole table and of the short one
. "$(dirname "$0")/harness.sh"
command -v python3 >/dev/null || { echo 'skipped: no python3'; exit 0; }
compare=$source_dir/bench/peers/compare
cd "$tmp" || exit 1

# --- the programs
columns=$("$build/lockstep" bench barrier --csv -n 1 | head -1)
claim 'the hand-written program compiles' "${CC:-cc}" -O1 -Wall -Wextra -Werror -o limit "$source_dir/bench/peers/limit.c"
for coll in all_reduce reduce_scatter all_gather broadcast all_to_all; do
    for how in '-n 2 -p in' '-n 3 -p out'; do
        [ "$coll $how" != 'all_to_all -n 2 -p in' ] || continue
        # shellcheck disable=SC2086
        timeout 60 ./limit -c $coll $how -b 48 -e 12288 -f 16 -t 0.001 -r 1 >rows || exit 1
        claim "its $coll $how is right" awk -F, 'NR > 1 && ($13 != 0 || $9 <= 0 || NF != 13) { exit 1 } END { exit NR != 4 }' rows
    done
done
claim 'and there and back' sh -c "./limit -c sendrecv -b 64 -e 64 -t 0.001 -r 1 | awk -F, 'NR == 2 && \$13 == 0 { ok = 1 } END { exit !ok }'"
claim 'it prints the columns of lockstep bench --csv' test "$(head -1 rows)" = "$columns"
claim 'no line has to be waited for in a broadcast: a leaf may fetch it ahead; in other collectives it has' python3 - "$source_dir/bench" <<'PY'
import sys
sys.path.insert(0, sys.argv[1])
import roofline
class Machine:
    def load_s(self): return 1e-6
    def rate(self, what, nbytes): return 1e12
assert roofline.collective_us(Machine(), 'broadcast', 8, 2, 2) < 0.1
assert roofline.collective_us(Machine(), 'all_reduce', 8, 2, 2) >= 1
PY
claim 'torch prints them too' grep -q "print('$columns')" "$source_dir/bench/peers/peer_torch.py"
claim 'the wire compiles' "${CC:-cc}" -O1 -Wall -Wextra -Werror -o wire "$source_dir/bench/peers/wire.c"
claim 'the rates compile' "${CC:-cc}" -O1 -Wall -Wextra -Werror -pthread -o bound "$source_dir/bench/peers/bound.c"

# --- every rank on its cores, in C and in Python alike
claim 'pin compiles' "${CC:-cc}" -O1 -Wall -Wextra -Werror -o pin "$source_dir/bench/peers/pin.c"
for rank in 0 1 5; do
    rm -f c py
    claim "pin starts the command of rank $rank" test "$(RANK=$rank BENCH_PINS=$tmp/c ./pin 1 echo started)" = started
    PYTHONPATH=$source_dir/bench BENCH_PINS=$tmp/py python3 -Bc "from pin import pin; pin($rank, 1)" || exit 1
    claim 'on the same core as pin.py' cmp c py
    claim 'which is core rank modulo cores' python3 -Bc "
import os
cores = sorted(os.sched_getaffinity(0))
assert open('c').read() == '$rank %d\n' % cores[$rank % len(cores)]"
done
rm -f c
OMPI_COMM_WORLD_RANK=1 BENCH_PIN=free BENCH_PINS=$tmp/c ./pin 1 true
claim 'or all of them on all' python3 -Bc "
import os
assert open('c').read() == '1 %s\n' % ','.join(map(str, sorted(os.sched_getaffinity(0))))"

# --- made-up rows: who is compared, and what a row is called
cat >record.py <<'PY'
import json, sys
kind = sys.argv[2] if len(sys.argv) > 2 else ''
rows = []
def add(who, us, wire='shm', nbytes=8, ranks=2):
    rows.append([who, wire, 'all_reduce', ranks, nbytes, [[p, v, v] for p, v in enumerate(us)]])
add('lockstep', [10, 10, 12]); add('lockstep private', [20, 20, 20])
add('Open MPI', [15, 30, 30]); add('Open MPI, MPI_Win_allocate_shared', [14, 13, 13]); add('MPICH, in place', [30, 25, 25])
add('quick once', [1.0]) if kind == 'once' else None
add('hand-written', [5, 5, 5])
add('lockstep', [10, 10, 10], nbytes=128); add('Open MPI', [30, 9, 30], nbytes=128)
add('lockstep', [10, 10, 10], nbytes=2048); add('Open MPI', [9, 9, 8], nbytes=2048)
add('lockstep', [400e3, 390e3, 400e3], 'hosts', 1 << 25); add('Gloo ring', [600e3, 600e3, 600e3], 'hosts', 1 << 25)
add('lockstep', [200e3, 200e3, 200e3], 'hosts-bf16', 1 << 25)
if kind == 'lossy':
    add('Gloo ring', [250e3, 250e3, 250e3], 'hosts-bf16', 1 << 25)
add('lockstep', [300e3], 'hosts4', 1 << 25, 4); add('ring, hosts in turn', [900e3], 'hosts4', 1 << 25, 4)
load = 11000 if kind == 'impossible' else 500
rates = [['load', 2, 64, load]] + [[w, 2, 4096, 100.0] for w in ('pull', 'read', 'write', 'copy')]
json.dump(dict(run={}, cores=2, rates=rates, rows=rows), open(sys.argv[1], 'w'))
PY
made() { python3 record.py rows.json "${1:-}" && "$compare" --from rows.json >out 2>err; }
row() { grep -qF "$1" out; }
made || exit 1
claim 'a row has time, fastest peer in any memory, ratio, target, roofline and hand-written time' row \
    '| all_reduce, 2 ranks, 8 B, registered | 10.0 | Open MPI, MPI_Win_allocate_shared | 13.0 | 1.30x | 1.08-1.40 | ahead | 1.8x, not reached | 0.500 | 5 % | 5.000 |'
claim 'private memory is beside private memory, and each pass beside who was fastest in it' row \
    '| all_reduce, 2 ranks, 8 B, private | 20.0 | MPICH, in place | 25.0 | 1.25x | 0.75-1.25 | level | 1x, not reached |'
claim 'a row with one pass behind is not ahead' row '| all_reduce, 2 ranks, 128 B, registered | 10.0 | Open MPI | 30.0 | 3.00x | 0.90-3.00 | level | 1.8x, not reached |'
claim 'a row with every pass behind is behind' row '| all_reduce, 2 ranks, 2 KiB, registered | 10.0 | Open MPI | 9.000 | 0.90x | 0.80-0.90 | behind |'
claim 'two hosts have the wire for a roofline' row '| 600000 | 1.50x | 1.50-1.54 | ahead | 1.05x, reached | 282977 | 71 % |'
claim 'bf16 on the wire is beside nobody who sends f32' row '| all_reduce, 2 ranks, 32 MiB, two hosts, bf16 on the wire of all, registered | 200000 | none |  |  |  |  |  |'
claim 'our own other way is no peer' row '| all_reduce, 4 ranks, 32 MiB, two hosts of 2, hierarchical, registered | 300000 | none |  |  |  |  |  | 282977 | 94 % |'
claim 'but information' row '| all_reduce, 4 ranks, 32 MiB, two hosts of 2, hierarchical, registered | 300000 | ring, hosts in turn | 900000 | 3.00x |'
claim 'a row that was not measured stands there' row '| all_reduce, 2 ranks, 32 KiB, registered | not measured |'
claim 'the end counts' grep -qE '^[0-9]+ rows: 2 ahead, 2 level, 1 behind, 2 without a peer to compare with, [0-9]+ not measured; 1 of 5 targets reached in every pass$' out
made lossy || exit 1
claim 'bf16 is beside bf16' row 'bf16 on the wire of all, registered | 200000 | Gloo ring | 250000 | 1.25x | 1.25-1.25 | ahead |'
made once || exit 1
claim 'in each pass the fastest of that pass counts, whoever it is' row \
    '| all_reduce, 2 ranks, 8 B, registered | 10.0 | Open MPI, MPI_Win_allocate_shared | 13.0 | 1.30x | 0.10-1.30 | level |'
made impossible
claim 'which ends the program' test $? = 1
claim 'and is said' grep -q '^compare: the bound is wrong: all_reduce, 2 ranks, 8 B, registered took 10, and its roofline says that nothing takes less than 11$' err

# --- a whole run, of contestants that always take the same time, in a repository of its own
command -v git >/dev/null || finish
export GIT_CONFIG_NOSYSTEM=1 HOME=$tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b BENCH_PROCESSOR='Made-up 9000' BENCH_PAUSE_S=0
mkdir -p repo/docs && cp -r "$source_dir/bench" repo && rm -rf repo/bench/results || exit 1
cat >repo/docs/performance.md <<'DOC'
above
<!-- begin: make bench-peers -->
old
<!-- end: make bench-peers -->
between
<!-- begin: make bench-peers quick -->
#### Other 1, 64 cores

kept
<!-- end: make bench-peers quick -->
below
DOC
printf 'build/\n' >repo/.gitignore
(cd repo && git init -q . && git add -A && git commit -qm first) || exit 1
cd repo && mkdir -p build/peers bin || exit 1
compare=$PWD/bench/peers/compare commit=$(git rev-parse --short HEAD)
printf '#!/bin/bash\nexit 77\n' >bench/peers/hosts # there are no two hosts here
git commit -qam 'no hosts' && commit=$(git rev-parse --short HEAD)
cp "$tmp/pin" build/peers/pin
cat >build/peers/bound <<'SH'
#!/bin/bash
printf 'what,bytes,cores,value\nload,64,2,1\n'
SH
cat >"$tmp/fake.c" <<'C'
/* A contestant that always takes the time in the file NAME.us beside it, and whose ranks are where they should be. */
#include "pin.h"
#include <sys/wait.h>
static const char *option(int argc, char **argv, const char *a, const char *b)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], a) == 0 || strcmp(argv[i], b) == 0) return argv[i + 1];
    return "";
}
int main(int argc, char **argv)
{
    char path[512], us[64] = "", commit[64] = "", wrong[8] = "0";
    snprintf(path, sizeof path, "%s.us", argv[0]);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%63s %7s %63s", us, wrong, commit) < 2) return 71;
    if (argc > 1 && strcmp(argv[1], "--version") == 0) return printf("lockstep 9.9.9 (commit %s, made up)\n", commit) < 0;
    if (argc > 3 && strcmp(argv[1], "calibrate") == 0) return !fopen(argv[3], "w");
    const char *calibration = getenv("LOCKSTEP_CALIBRATION"); /* of this run, and there */
    if (strstr(argv[0], "/lockstep") && (!calibration || access(calibration, R_OK) != 0)) return 72;
    const char *coll = option(argc, argv, "bench", "-c"), *ways = option(argc, argv, "-m", "-m");
    const int ranks = atoi(option(argc, argv, "-n", "--nproc-per-node"));
    for (int r = 0; r < ranks && strcmp(coll, "barrier") != 0; r++)
        if (fork() == 0) {
            pin_rank(getenv("ALL_ON_FIRST") && strcmp(strrchr(argv[0], '/'), "/gloo") == 0 ? 0 : r, 1);
            _exit(0);
        }
    while (wait(NULL) > 0) continue;
    printf("program,collective,place,memory,ranks,bytes,iterations,min_us,median_us,single_us,algbw_GBps,busbw_GBps,wrong\n");
    static const char *const kind[] = { "private", "alloc", "window" }, *const name[] = { "private", "MPI_Alloc_mem", "MPI_Win_allocate_shared" };
    for (int k = 0; k < 6; k++) {
        char way[32];
        snprintf(way, sizeof way, "%s.%s", kind[k / 2], k % 2 ? "in" : "out");
        if (*ways ? !strstr(ways, way) : k != 1) continue;
        for (long n = atol(option(argc, argv, "-b", "-b")); n <= atol(option(argc, argv, "-e", "-e")); n *= 16)
            printf("x,%s,%s,%s,2,%ld,100,%s,%s,%s,1,1,%s\n", coll, k % 2 ? "in" : "out", name[k / 2], n, us, us, us, wrong);
    }
    return 0;
}
C
"${CC:-cc}" -O1 -I"$source_dir/bench/peers" -o fake "$tmp/fake.c" || exit 1
program() { # path, us, wrong results: a contestant
    cp fake "build/$1"
    echo "$2 ${3:-0} $commit" >"build/$1.us"
}
program lockstep 10
program peers/limit 8
program peers/gloo 25
program peers/mpi.openmpi 15
printf '#!/bin/bash\nexec %s/build/peers/mpi.openmpi "$@"\n' "$PWD" >bin/mpirun.openmpi
chmod +x build/peers/* bin/*
export PATH=$PWD/bin:$PATH
printf '/build/\n/bin/\n/fake\n' >.gitignore
git add -A && git commit -qm 'the rest' && commit=$(git rev-parse --short HEAD) && program lockstep 10

run() { "$compare" --build build "$@" 2>../err; }
table=../out
few='all_reduce, 2 ranks, 8 B, (tcp|registered)'
run --cell "$few" --passes 2 >$table || exit 1
row() { grep -qF "$1" $table; }
claim 'an MPI is measured in its own memory, too' grep -q '^| all_reduce, 2 ranks, 8 B, registered | 10.0 | Open MPI[^|]* | 15.0 | 1.50x | 1.50-1.50 | ahead | 1.8x, not reached |' $table
run --cell "$few" --passes 1 --peers >$table
for way in 'Open MPI 15.0' 'Open MPI, in place 15.0' 'Open MPI, MPI_Alloc_mem 15.0' 'Open MPI, in place, MPI_Win_allocate_shared 15.0'; do
    claim "$way is one of them" grep -q "^all_reduce, 2 ranks, 8 B, registered: .*$way" $table
done
claim 'machine, commit and command are named' test "$(grep -cE "^(Machine: Made-up 9000, .+\.|Commit: $commit\.|Command: \`bench/peers/compare .*--peers\`, 1 passes\.)\$" $table)" = 3
claim 'Lockstep is calibrated for the run' grep -qx 'Lockstep was calibrated before the first pass (lockstep calibrate)' $table
claim 'who is not there is named, with the reason' grep -q '^without MPICH: not built: bench/peers/build' $table
claim 'a run that is not published is not listed' test ! -e bench/results/runs.csv
program peers/gloo 25 7
run --cell "$few" --passes 1 >$table
claim 'wrong results are told' grep -q '^failed: Gloo ring: WRONG RESULTS' $table
printf '#!/bin/bash\necho oh dear >&2\nexit 3\n' >build/peers/gloo
run --cell "$few" --passes 1 >$table
claim 'so is a peer that fails' grep -q '^failed: Gloo ring, all_reduce, 2 ranks, small: oh dear$' $table
program peers/gloo 25
ALL_ON_FIRST=1 run --cell "$few" --passes 1 --peers >$table
claim 'a peer whose ranks are not on their cores does not count' grep -q '^failed: Gloo ring, all_reduce, 2 ranks, small: ranks are not pinned as everybody.s are: expected rank 0 on .*, rank 1 on .*; found rank 0 on' $table
claim 'nor is it in the row' sh -c "grep 'checksums, registered: lockstep 10.0; Open MPI' $table | grep -qv Gloo"
claim 'a row that there is not ends it' fails_with 1 'no row matches' "$compare" --build build --cell 'carrier pigeon'
run --cell "$few" --passes 1 --rows ../kept.json >$table
claim 'rows that were kept give the same table' diff <(grep '^|' $table) <("$compare" --from ../kept.json --cell "$few" | grep '^|')

# a flag that takes ten times as long in every second look is never near before and after a row
mv build/peers/limit build/peers/limit.right
cat >build/peers/limit <<SH
#!/bin/bash
case " \$* " in *' barrier '*) us=9.8; [ ! -e build/far ] || us=98; [ -e build/far ] && rm build/far || : >build/far
    printf 'header\nlimit,barrier,in,private,2,8,100,1,1,%s,1,1,0\n' \$us; exit ;; esac
exec build/peers/limit.right "\$@"
SH
chmod +x build/peers/limit
run --cell 'all_reduce, 2 ranks, 8 B, registered' --passes 1 >$table
claim 'measurements of cores far apart are counted' grep -qE '^([1-9]) of \1 measurements in shared memory were made with the cores far apart$' $table
mv build/peers/limit.right build/peers/limit

# --- what may be published
doc=docs/performance.md
claim 'a part of the rows is not published' fails_with 1 '--write publishes a whole table, and --cell leaves rows out' "$compare" --build build --cell "$few" --write $doc
claim 'nor without some peers' fails_with 1 'and --peer leaves rows out' "$compare" --build build --peer Gloo --write $doc
claim 'nor --quick as the whole' fails_with 1 'and --quick leaves rows out' "$compare" --build build --quick --write $doc
claim 'nor recorded rows' fails_with 1 'and --from leaves rows out' "$compare" --build build --from ../kept.json --write $doc
claim 'nor fewer than three passes' fails_with 1 'needs at least 3 passes, here are 2' "$compare" --build build --passes 2 --write $doc
claim 'a whole table is not put under --write-quick' fails_with 1 '--write-quick is for --quick' "$compare" --build build --write-quick $doc
claim 'a document must have a place for it' fails_with 1 'has no lines' "$compare" --build build --write ../out
echo '# changed' >>bench/turns.py
claim 'a tree that differs from its commit is refused' fails_with 1 'the tree differs from its commit: bench/turns.py' "$compare" --build build --write $doc
git checkout -q bench/turns.py
git commit -q --allow-empty -m another
claim 'and a build of another commit' fails_with 1 "is a build of $commit, and" "$compare" --build build --write $doc
commit=$(git rev-parse --short HEAD)
program lockstep 10
claim 'none of these is listed, for nothing was measured' test ! -e bench/results/runs.csv
claim 'a whole run is published' run --write $doc
claim 'between its lines' test "$(head -2 $doc | tr '\n' ' ')$(tail -1 $doc)$(grep -c '^| all_reduce, 2 ranks, 8 B, registered | 10.0 |' $doc)$(grep -c old $doc)" = \
    'above <!-- begin: make bench-peers --> below10'
id=$(tail -1 bench/results/runs.csv | cut -d, -f1)
claim 'it has a line in the list of runs' grep -qE "^$id,peers,.*,$commit,.*,written to docs/performance.md$" bench/results/runs.csv
claim 'and the table names it' grep -q "^Run: $id in bench/results/runs.csv.$" $doc
claim 'with as many rows as the table' test "$(grep -E '^[0-9]+ rows: ' $doc | cut -d' ' -f1)" = \
    "$(python3 -c 'import csv; print(list(csv.DictReader(open("bench/results/runs.csv")))[-1]["rows"])')"
program lockstep 40
claim 'a run that looks worse is listed, too' run --quick --record
claim 'with what it shows' python3 -c '
import csv
worse = list(csv.DictReader(open("bench/results/runs.csv")))[-1]
assert worse["outcome"] == "recorded" and int(worse["behind"]) > 30 and worse["ahead"] == "0", worse'
claim 'the table of another run stays' grep -q "^Run: $id in" $doc
if [ -n "${LOCKSTEP_TEST_LONG:-}" ]; then # another whole run
    printf '#!/bin/bash\nprintf "what,bytes,cores,value\\nload,64,2,99000\\n"\n' >build/peers/bound
    claim 'a run above its roofline is not published' fails_with 1 'nothing is written: a roofline is exceeded' "$compare" --build build --write $doc
    claim 'but listed' grep -qE ',not published: a roofline is exceeded$' bench/results/runs.csv
    claim 'and the document is as it was' grep -q "^Run: $id in" $doc
    printf '#!/bin/bash\nprintf "what,bytes,cores,value\\nload,64,2,1\\n"\n' >build/peers/bound
fi
program lockstep 10
claim 'a quick table goes under the name of its processor' run --quick --write-quick $doc
claim 'beside those of others' test "$(grep -cE '^(#### Made-up 9000, [0-9]+ cores|#### Other 1, 64 cores|kept|Run: .*-peers-quick in .*)$' $doc)" = 4
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || claim 'again, it replaces its own' sh -c "'$compare' --build build --quick --write-quick $doc >/dev/null 2>&1 && test \$(grep -c '^#### Made-up 9000' $doc) = 1 && grep -q '^kept' $doc"
printf '#!/bin/bash\necho $$ >started\nexec sleep 60\n' >build/peers/bound # a run that is given up
"$compare" --build build --record >/dev/null 2>&1 &
disown
given_up=$!
for _ in $(seq 600); do [ ! -s started ] || break; sleep 0.1; done
kill -9 $given_up && kill "$(cat started)"
claim 'a run that is given up stays in the list' grep -q ',not finished$' bench/results/runs.csv
finish
