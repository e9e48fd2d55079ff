#!/bin/bash
# bench/peers: the same method and columns for every contestant, and a table that says what was measured.
. "$(dirname "$0")/harness.sh"
compare=$source_dir/bench/peers/compare
command -v python3 >/dev/null || { echo 'skipped: no python3'; exit 0; }
cd "$tmp" || exit 1

# --- the programs
columns=$("$build/lockstep" bench barrier --csv -n 1 | head -1)
claim 'the limit compiles' "${CC:-cc}" -O1 -Wall -Wextra -Werror -o limit "$source_dir/bench/peers/limit.c"
for coll in all_reduce reduce_scatter all_gather broadcast all_to_all; do
    for how in '-n 2 -p in' '-n 3 -p out'; do
        [ "$coll $how" != 'all_to_all -n 2 -p in' ] || continue
        # shellcheck disable=SC2086
        timeout 60 ./limit -c $coll $how -b 48 -e 12288 -f 16 -t 0.001 -r 1 >rows || exit 1
        claim "the limit of $coll $how is right" awk -F, 'NR > 1 && ($13 != 0 || $9 <= 0 || NF != 13) { exit 1 } END { exit NR != 4 }' rows
    done
done
claim 'and there and back' sh -c "./limit -c sendrecv -b 64 -e 64 -t 0.001 -r 1 | awk -F, 'NR == 2 && \$13 == 0 { ok = 1 } END { exit !ok }'"
claim 'it prints the columns of lockstep bench --csv' test "$(head -1 rows)" = "$columns"
claim 'torch prints them too' grep -q "print('$columns')" "$source_dir/bench/peers/peer_torch.py"
claim 'the wire compiles' "${CC:-cc}" -O1 -Wall -Wextra -Werror -o wire "$source_dir/bench/peers/wire.c"

# --- the table, of contestants that always take the same time
mkdir -p fake/peers
fake() { # program, label, us, wrong
    cat >"fake/$1" <<SH
#!/bin/bash
[ "\$1" != --version ] || { echo 'lockstep 9.9.9 (commit abcdef)'; exit; }
echo '$columns'
echo '$2,all_reduce,in,private,2,8,100,$3,$3,$3,1,1,$4'
SH
    chmod +x "fake/$1"
}
fake lockstep lockstep 10 0
fake peers/gloo gloo 25 0
table() { "$compare" --build fake --cell '2 ranks, 8 B, tcp' --passes 2 "$@" 2>/dev/null; }
table >out || exit 1
claim 'a cell says both times, the ratio, the demand and whether it is met' \
    grep -qF '| all_reduce, 2 ranks, 8 B, tcp, with checksums | 10.0 | Gloo hd | 25.0 | 2.50x | 2.50-2.50 | 1.6x | met |' out
claim 'the footer counts' grep -qx '1 of 1 cells met, 0 more at the limit' out
claim 'machine, commit and command are named' test "$(grep -cE '^(machine: .+|commit: lockstep 9.9.9 \(commit abcdef\)|command: bench/peers/compare .*--passes 2)$' out)" = 3
claim 'who is not there is named, with the reason' grep -q '^without Open MPI: not built: bench/peers/build' out
fake peers/gloo gloo 15 0
table --runs 3 >out || exit 1
claim 'a demand that is missed is marked' grep -qF '| 1.50x | 1.50-1.50 | 1.6x | **missed** |' out
fake peers/gloo gloo 15 7
table >out || exit 1
claim 'wrong results are told' grep -q '^failed: Gloo ring: WRONG RESULTS' out
printf '#!/bin/bash\necho oh dear >&2\nexit 3\n' >fake/peers/gloo
table >out || exit 1
claim 'so is a peer that fails' grep -q '^failed: Gloo ring, all_reduce, 2 ranks, small: oh dear$' out
claim 'a cell that there is not ends it' fails_with 1 'no cell matches' "$compare" --build fake --cell 'carrier pigeon'
claim 'rows can be kept' sh -c "'$compare' --build fake --cell '2 ranks, 8 B, tcp' --passes 1 --rows rows.json >/dev/null 2>&1; python3 -c '
import json
d = json.load(open(\"rows.json\"))
assert d[\"runs\"][0][0][\"program\"] == \"lockstep\" and d[\"runs\"][0][0][\"bytes\"] == 8'"

# --- in shared memory: the limit, and cores that move
fake peers/limit limit 9.8 0
fake peers/mpi.openmpi mpi 15 0
mkdir -p fake/bin
printf '#!/bin/bash\nexec "%s" --\n' "$tmp/fake/peers/mpi.openmpi" >fake/bin/mpirun.openmpi
chmod +x fake/bin/mpirun.openmpi
near() { PATH="$tmp/fake/bin:$PATH" "$compare" --build fake --cell 'all_reduce, 2 ranks, 8 B, registered' --passes 1 2>/dev/null; }
near >out || exit 1
claim 'who is as quick as the limit has reached it' grep -qF '| 1.50x | 1.50-1.50 | 1.8x | missed, at the limit | 9.800 | 1.53x |' out
claim 'it is counted apart' grep -qx '0 of 1 cells met, 1 more at the limit' out
claim 'and so are rows of cores far apart' grep -qx '0 of 4 measurements in shared memory were made with the cores far apart' out
fake peers/limit limit 16 0
near >out || exit 1
claim 'a limit that a peer is ahead of is none' grep -qF '| 1.50x | 1.50-1.50 | 1.8x | **missed** | 16.0 | 0.94x |' out
# a flag that takes ten times as long in every second look is never near before and after a row
cat >fake/peers/limit <<SH
#!/bin/bash
us=9.8
case " \$* " in *' barrier '*) [ ! -e fake/far ] || us=98; [ -e fake/far ] && rm fake/far || : >fake/far ;; esac
echo '$columns'
echo "limit,all_reduce,in,private,2,8,100,\$us,\$us,\$us,1,1,0"
SH
near >out || exit 1
claim 'which are told' grep -qx 'cores far apart: Open MPI, all_reduce, 2 ranks, small' out
rm -r fake/peers/limit fake/peers/mpi.openmpi fake/far

printf 'above\n<!-- begin: make bench-peers -->\nold\n<!-- end: make bench-peers -->\nbelow\n' >doc.md
table --write doc.md >/dev/null || exit 1
claim 'the table goes into a document' test "$(head -2 doc.md | tr '\n' ' ')$(tail -2 doc.md | tr '\n' ' ')$(grep -c '^| cell | lockstep us' doc.md)$(grep -c old doc.md)" = \
    'above <!-- begin: make bench-peers --> <!-- end: make bench-peers --> below 10'
claim 'which must have a place for it' fails_with 1 'has no lines' "$compare" --build fake --cell '2 ranks, 8 B, tcp' --passes 1 --write out
claim '--help says what it does' has_line 'compare -- Lockstep beside its peers, turn by turn: cell, times, ratio, demand.' "$compare" --help
finish
