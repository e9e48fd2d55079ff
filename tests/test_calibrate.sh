#!/bin/bash
# lockstep calibrate and what follows from it: measured, kept, shown, used, and overridden.
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
lockstep=$build/lockstep
export HOME=$tmp/home
unset XDG_CACHE_HOME LOCKSTEP_ALGO LOCKSTEP_CALIBRATION
explain() { "$lockstep" bench "$1" --transport tcp --explain -g 4 -b "$2" -e "$2" "${@:3}"; }
chosen() { explain "$@" | sed -n 's/^ *\([a-z_-]*\) .*<- chosen/\1/p'; }

# --- measuring
claim 'shows the preset where nothing was measured' has_line 'from the preset' "$lockstep" calibrate --show
claim 'measures and keeps' has_line "kept in $HOME/.cache/lockstep/calibration.json" "$lockstep" calibrate
claim 'shows what was measured' has_line "from $HOME/.cache/lockstep/calibration.json" "$lockstep" calibrate --show
claim 'keeps JSON with every number' python3 - "$HOME/.cache/lockstep/calibration.json" <<'PY'
import json, sys
c = json.load(open(sys.argv[1]))
assert c["lockstep_calibration"] == 1 and c["host"]
for level in "memory", "loopback":
    link = c[level]
    assert 0 < link["alpha_ns"] < 1e9 and 0 <= link["gap_ns"] <= link["alpha_ns"], (level, link)
    assert 0 < link["beta_ns_per_byte"] < 1e4, (level, link)
assert c["gamma_ns_per_byte"] >= 0 and c["poke_ns"] >= 0
assert c["network"]["alpha_ns"] == 30000 # not measured on one host
m = c["in_memory"]
assert set(m) == {"sum_in_place_bytes", "copy_in_place_bytes", "past_cache_bytes", "mail_string_bytes", "stage_past_cache_bytes",
                  "attach_bytes"}, m
assert all(0 <= x <= 1e12 for x in m.values()), m
PY
claim 'says with what it chooses' has_line "costs from $HOME/.cache/lockstep/calibration.json" explain all_reduce 1K
claim 'keeps it elsewhere on request' has_line 'kept in here/c.json' "$lockstep" calibrate --output here/c.json
claim 'which jobs use when they are told' has_line 'costs from here/c.json' \
    env LOCKSTEP_CALIBRATION=here/c.json "$lockstep" bench all_reduce --explain -g 2 -b 8 -e 8
claim 'or not at all' has_line 'costs from the preset' \
    env LOCKSTEP_CALIBRATION=none "$lockstep" bench all_reduce --explain -g 2 -b 8 -e 8

# --- broken files
mkdir -p "$HOME/.cache/lockstep"
echo '{"lockstep_calibration": 1, "poke_ns": -1}' >bad.json
cp bad.json "$HOME/.cache/lockstep/calibration.json"
claim 'a broken cache is named and replaced by the preset' has_line 'costs from the preset' explain all_reduce 1K
claim 'with a warning' has_line 'poke_ns: expected a number from 0 to 1e+12' \
    sh -c "'$lockstep' bench all_reduce --explain -g 2 -b 8 -e 8 2>&1"
claim 'a broken file that was asked for ends the job' fails_with 65 'bad.json: poke_ns: expected a number' \
    env LOCKSTEP_CALIBRATION=bad.json "$lockstep" bench all_reduce -g 2 -b 8 -e 8
claim 'so does one that is not there' fails_with 74 'none.json' \
    env LOCKSTEP_CALIBRATION=none.json "$lockstep" calibrate --show
export LOCKSTEP_CALIBRATION=$tmp/costs.json

# --- choosing: rounds cost all, then bytes cost all
cost() { # alpha, beta
    echo "{\"lockstep_calibration\": 1, \"loopback\": {\"alpha_ns\": $1, \"gap_ns\": $1, \"beta_ns_per_byte\": $2}}" >costs.json
}
cost 1e6 0
claim 'few rounds where rounds cost all' test "$(chosen all_reduce 4M)" = recursive_doubling
cost 1 100
claim 'few bytes where bytes cost all' test "$(chosen all_reduce 4M)" = direct
claim 'segments where bytes cost all' has_line ' segments' explain broadcast 4M
claim 'the fastest candidate comes first' sh -c "'$lockstep' bench all_reduce --transport tcp --explain -g 4 -b 64K -e 64K |
    sed -n 's/.* \([0-9.]*\) us.*/\1/p' | sort -c -n"
bench() { "$lockstep" bench all_reduce --transport tcp -g 4 -b 4K -e 4M -f 32 -n 2 -w 0 --count "$@"; }
claim 'what is chosen is what runs' has_line "direct              rank all" bench
claim 'and its results are right' has_line 'Out of bounds values : 0 OK' bench

# --- forms in mapped memory, where each of two ranks has a core
if [ "$(nproc)" -ge 2 ]; then
    forms() { # what runs for 2 KiB and 8 KiB
        "$lockstep" bench "$1" --place out -b 2K -e 8K -f 4 -n 2 -w 0 --count | grep -oE '  (oneshot|fold) ' | tr -d ' \n'
    }
    points() { echo "{\"lockstep_calibration\": 1, \"in_memory\": {\"sum_in_place_bytes\": $1, \"copy_in_place_bytes\": $2}}" >costs.json; }
    points 2048 1e12
    claim 'sums in place above a size' test "$(forms reduce_scatter) $(forms all_gather)" = 'oneshotfold oneshotoneshot'
    points 0 2048
    claim 'that a calibration moves' test "$(forms reduce_scatter) $(forms all_gather)" = 'foldfold oneshotfold'
    told() { "$lockstep" bench "$1" --explain -g 2 -b 2K -e 8K -f 4 | sed -n 's/^ *\([a-z]*\) .*<- chosen/\1/p' | tr -d '\n'; }
    claim 'and --explain says beforehand' test "$(told reduce_scatter) $(told all_gather)" = 'foldfold oneshotfold'
    cat >points.sh <<'SH'
[ "$RANK" = 0 ] || export LOCKSTEP_CALIBRATION=none
exec "$@"
SH
    claim 'for all ranks alike, by what rank 0 was told' has_line 'Out of bounds values : 0 OK' "$lockstep" run --nproc-per-node 2 \
        sh points.sh "$lockstep" bench reduce_scatter -b 64 -e 1M -f 4 -n 2 -w 0
fi
claim 'shows them' has_line 'mailbox copies use the string instruction from     never' "$lockstep" calibrate --show

# --- what a form moves, of the rank with the most, and its time: alpha x rounds + beta x bytes + gamma x added ones
told() { "$lockstep" bench reduce --explain -g 3 -r 2 -b 4K -e 4K | sed -n "s/^ *$1 *//p" | tr -s ' '; }
memory() { echo "{\"lockstep_calibration\": 1, \"memory\": {\"alpha_ns\": $1, \"beta_ns_per_byte\": $2}, \"gamma_ns_per_byte\": 1}" >costs.json; }
memory 1000 1
claim 'explains mailboxes by the root' test "$(told mail)" = '2 1 0 8192 0 8192 0 9.19 us <- chosen'
claim 'what is chosen need not be the fastest by the costs' test "$(told fold)" = '0 2 2 2816 1408 2816 0 6.22 us'
claim 'a root copies out of slots too' test "$(told staged)" = '2 3 7 5440 0 2688 2752 11.19 us in private memory'
memory 9000 0
claim 'explains by the costs that are asked for' test "$(told mail), $(told fold), $(told staged)" = \
    "2 1 0 8192 0 8192 0 17.19 us <- chosen, 0 2 2 2816 1408 2816 0 20.82 us, 0 3 6 2816 0 2816 4096 29.82 us in private memory"

# --- asking
claim 'LOCKSTEP_ALGO names one for all' has_line 'asked for: ring' env LOCKSTEP_ALGO=ring "$lockstep" bench all_reduce \
    --transport tcp --explain -g 2 -b 1M -e 1M
export LOCKSTEP_ALGO=all_reduce=ring,broadcast=chain
claim 'or one for each collective' test "$(chosen all_reduce 4M) $(chosen broadcast 64)" = 'ring chain'
claim 'the others are chosen' test "$(chosen all_gather 4M)" != ring
claim 'it comes before --algo' has_line 'asked for: all_reduce=ring' explain all_reduce 1K --algo direct
unset LOCKSTEP_ALGO
claim '--algo takes pairs too' test "$(chosen all_reduce 4M --algo all_reduce=direct)" = direct
claim 'an unknown algorithm' fails_with 78 "no algorithm named 'rnig'" env LOCKSTEP_ALGO=broadcast=rnig "$lockstep" bench \
    all_reduce -g 2 -b 8 -e 8
claim 'an unknown collective' fails_with 78 "no collective named 'all_redcue', for algorithm ring" \
    env LOCKSTEP_ALGO=all_redcue=ring "$lockstep" bench all_reduce -g 2 -b 8 -e 8
claim 'one that does something else' fails_with 64 "'tree' does not do all_reduce" \
    "$lockstep" bench all_reduce --algo all_reduce=tree -g 2 -b 8 -e 8

# --- ranks that were told different things do what rank 0 was told
cat >rank.sh <<'SH'
if [ "$RANK" = 0 ]; then export LOCKSTEP_ALGO=all_reduce=ring LOCKSTEP_CALIBRATION=none
else export LOCKSTEP_ALGO=all_reduce=oneshot LOCKSTEP_CALIBRATION=/nonexistent; fi
exec "$@"
SH
claim 'ranks agree on what rank 0 was told' has_line 'Out of bounds values : 0 OK' "$lockstep" run --nproc-per-node 3 sh rank.sh \
    "$lockstep" bench all_reduce --transport tcp -b 64 -e 1M -f 128 -n 2 -w 0
finish
