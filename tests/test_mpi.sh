#!/bin/bash
# Ranks that mpirun started, with Open MPI and with MPICH: they find one another, train to the same model as with
# `lockstep run`, hand their collectives to MPI when asked to, and end together. Skipped where neither is installed.
. "$(dirname "$0")/harness.sh"
. "$(dirname "$0")/harness_mpi.sh"
cd "$tmp" || exit 1
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}" # the MPI libraries leave memory behind; ours is looked at elsewhere
export TSAN_OPTIONS="detect_deadlocks=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}" # their locks are taken in both orders, too
export UCX_MEM_EVENTS=no # UCX locks in a thread that ThreadSanitizer has already let go
train=("$build/lockstep" train --data.name synthetic --train.steps 12 --train.global_batch 24 --model.dims 64,32,10)

final() { sed -n "s/^final .*$1=\([^ ]*\).*/\1/p" <<<"$out"; }
close_to() { awk -v a="$1" -v b="$2" 'function abs(x) { return x < 0 ? -x : x } BEGIN { exit !(a > 0 && abs(a - b) <= 1e-6 * b) }'; }
decimal() { printf '%.17g' "$1"; }
fails_saying() { # status, text, command...: as fails_with, on either stream, mpirun's words around ours
    local want=$1 text=$2 status
    shift 2
    out=$("$@" 2>&1)
    status=$?
    [ "$want" = any ] || [ $status = "$want" ] || { echo "exit status $status, expected $want: $out"; return 1; }
    [ $status != 0 ] && [[ $out == *"$text"* ]] || { echo "status $status, '$text' is not in: $out"; return 1; }
}

# --- without mpirun
claim 'backend mpi without mpirun: 78, and what to do' fails_with 78 'put mpirun -n 2 before' "${train[@]}" --comm.backend mpi -n 2
claim 'as many ranks as the degrees of the plan say' fails_with 78 'put mpirun -n 3 before' "${train[@]}" --comm.backend mpi --parallel.dp 3
# It comes before what is wrong for one rank, or for as many as were asked for.
while read -r options; do
    claim "with $options: mpirun comes first" fails_with 78 'put mpirun -n 4 before' "${train[@]}" --comm.backend mpi -n 4 $options
    claim "under lockstep run, with $options: mpirun comes first" fails_with 78 'put mpirun -n 4 before the command in its place' \
        "$build/lockstep" run --nproc-per-node 4 -- "${train[@]}" --comm.backend mpi $options
done <<'ROWS'
--zero.stage 1 --zero.hsdp 2
--zero.stage 1 --zero.hsdp 3
--inject kill@3:2
--inject kill@4:2
--train.global_batch 6
--trace.steps 10:12 --train.steps 3
ROWS
claim 'a log folder, which a launcher fills: mpirun comes first' fails_with 78 'put mpirun -n 2 before' \
    "${train[@]}" --comm.backend mpi --log-dir logs
claim 'tune buckets: mpirun comes first' fails_with 78 'put mpirun -n 4 before' \
    "$build/lockstep" tune buckets exercise-mlp --comm.backend mpi -n 4
claim 'on one rank, too, which tune refuses' fails_with 78 'put mpirun -n 2 before' \
    "$build/lockstep" tune buckets exercise-mlp --comm.backend mpi
claim 'bench: mpirun comes first' fails_with 78 'put mpirun -n 3 before' \
    "$build/lockstep" bench sendrecv --backend mpi --ranks 3 --timeout 1s
claim 'with a root that is not there, too' fails_with 78 'put mpirun -n 3 before' \
    "$build/lockstep" bench broadcast --backend mpi --ranks 3 --root 3
claim 'explain zero starts no ranks: it says what it cannot know' fails_with 78 'comm.backend mpi: the bytes that another library' \
    "$build/lockstep" explain zero "${train[@]:2}" --comm.backend mpi -n 4
claim 'a dry run starts no ranks' "${train[@]}" --comm.backend mpi -n 4 --dry-run
claim 'under lockstep run: 78, and mpirun in its place' fails_with 78 'in its place' \
    "$build/lockstep" run --nproc-per-node 2 -- "$build/lockstep" bench all_reduce --backend mpi
claim 'ranks that are threads: 78' fails_with 78 'ranks are threads' "$build/lockstep" bench all_reduce --backend mpi --threads
claim 'doctor lists both plugins' has_line 'mpi-mpich o' "$build/lockstep" doctor

declare -A digest loss
for n in 2 3 4; do
    out=$("${train[@]}" -n $n --run.dir "own-$n" 2>&1)
    digest[$n]=$(final digest) loss[$n]=$(final loss)
done
claim 'lockstep train itself ends with a digest' test -n "${digest[4]}"

for mpi in openmpi mpich; do
    have_mpi $mpi || continue
    case $mpi in openmpi) name='Open MPI' ;; *) name='PMI' ;; esac

    # --- rank from mpirun's environment, collectives by Lockstep
    claim "$mpi: doctor says who started it" has_line "this is rank 0 of 1, from $name" mpi $mpi 1 "$build/lockstep" doctor
    claim "$mpi: its plugin is on" has_line "mpi-$mpi on: " "$build/lockstep" doctor
    out=$(mpi $mpi 2 "$build/lockstep" bench all_reduce -b 64 -e 64 -n 2 2>&1)
    claim "$mpi: bench says who started the ranks" grep -q "^# Ranks from $name" <<<"$out"
    claim "$mpi: bench has one row for 2 ranks" test "$(grep -c '^ .* 0$' <<<"$out")" = 1
    claim "$mpi: shells between mpirun and the rank do no harm" \
        has_line 'Out of bounds values : 0 OK' mpi $mpi 2 sh -c "'$build/lockstep' bench all_reduce -b 64 -e 64 -n 2; exit \$?"
    out=$(LOCKSTEP_DEBUG=info mpi $mpi 3 "${train[@]}" --run.dir "$mpi-sched" 2>&1)
    claim "$mpi: every rank logs where it comes from" test "$(grep -c "^\[rank .\] rank . of 3 from $name" <<<"$out")" = 3
    claim "$mpi: rank 0 says so once" test "$(grep -c "^ranks: from $name" <<<"$out")" = 1
    claim "$mpi: and in which order sums are taken" grep -q '^collectives: sched .*ascending ranks' <<<"$out"
    claim "$mpi: 3 ranks end with lockstep run's digest" test "$(final digest)" = "${digest[3]}"
    mpi $mpi 2 "${train[@]}" --run.dir "$mpi-a" >a 2>&1 &
    mpi $mpi 2 "${train[@]}" --train.seed 1 --run.dir "$mpi-b" >b 2>&1
    wait $!
    claim "$mpi: two jobs at once do not meet" test "$(sed -n 's/^final.*digest=//p' a)" = "${digest[2]}"
    claim "$mpi: nor the other way" test "$(sed -n 's/^final.*digest=//p' b | wc -c)" -gt 30

    # --- collectives by MPI
    for n in 1 2 3 4; do
        claim "$mpi: every collective, type and reduction on $n ranks gives Lockstep's own results" \
            has_line "of $n ranks are Lockstep's own" mpi $mpi $n "$build/tests/test_backend" ranks inline
    done
    claim "$mpi: also with a progress thread" \
        has_line "of 2 ranks are Lockstep's own" mpi $mpi 2 "$build/tests/test_backend" ranks thread
    claim "$mpi: in rank order to the bit, averages and 16-bit types too" \
        has_line "of 3 ranks are Lockstep's own" mpi $mpi 3 "$build/tests/test_backend" ranks ordered
    out=$(mpi $mpi 2 "$build/lockstep" bench all_reduce --backend mpi -b 64 -e 64K -f 32 -n 2 2>&1)
    claim "$mpi: bench says that MPI carries collectives out" grep -q "^# Collectives by mpi (.*reduction order: MPI's own" <<<"$out"
    claim "$mpi: with right results" grep -q 'Out of bounds values : 0 OK' <<<"$out"
    out=$(mpi $mpi 2 "${train[@]}" --comm.backend mpi --run.dir "$mpi-mpi" 2>&1)
    claim "$mpi: 2 ranks, whose sums have but one order, end with lockstep run's digest" test "$(final digest)" = "${digest[2]}"
    out=$(mpi $mpi 4 "${train[@]}" --comm.backend mpi --comm.progress thread --run.dir "$mpi-thread" 2>&1)
    claim "$mpi: 4 ranks say that the order is MPI's own, and that the job is fail-stop" \
        grep -q "^collectives: mpi (.*reduction order: MPI's own; fail-stop" <<<"$out"
    claim "$mpi: and end within 1e-6 of its loss" close_to "$(decimal "$(final loss)")" "$(decimal "${loss[4]}")"
    out=$(mpi $mpi 4 "${train[@]}" --comm.backend mpi --comm.order ranks --run.dir "$mpi-ranks" 2>&1)
    claim "$mpi: in rank order 4 ranks end with lockstep run's digest" test "$(final digest)" = "${digest[4]}"

    # --- what goes wrong
    odd=("$build/tests/test_backend" odd)
    claim "$mpi: different counts are named" fails_saying any 'rank 1 called all_reduce #1 of world: 32 float sum' mpi $mpi 3 "${odd[@]}" count
    claim "$mpi: so are different reductions, though all bytes fit" fails_saying any 'rank 1 called all_reduce #1 of world: 64 float max' mpi $mpi 3 "${odd[@]}" op
    claim "$mpi: different collectives" fails_saying any 'rank 1 called broadcast #1' mpi $mpi 3 "${odd[@]}" coll
    claim "$mpi: a message of another type" fails_saying any 'must match in order, count and dtype' mpi $mpi 3 "${odd[@]}" message
    claim "$mpi: a rank that dies ends the job" fails_saying any '' mpi $mpi 3 "${odd[@]}" die
    # a survivor's sentence, unless mpirun ends it before it can speak: then mpirun's own
    claim "$mpi: and somebody says so" fails_saying any 'signal 9' mpi $mpi 3 "${train[@]}" --comm.backend mpi --inject kill@1:3 --run.dir "$mpi-die"
    mkdir alone && cp "$build/lockstep" alone/
    claim "$mpi: a plugin that is not there: what to install" env LOCKSTEP_PLUGIN_PATH= \
        bash -c "$(declare -f fails_saying mpi mpirun_of); fails_saying any 'built together with Lockstep where' mpi $mpi 2 alone/lockstep bench barrier --backend mpi"
    claim "$mpi: and found where LOCKSTEP_PLUGIN_PATH says" \
        has_line 'Collective test concluded' mpi $mpi 2 alone/lockstep bench barrier --backend mpi -n 2
    rm -r alone
done
finish
