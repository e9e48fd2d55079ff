#!/bin/bash
# long_mpi.sh -- the whole Fashion-MNIST recipe under mpirun, with Open MPI and with MPICH, on 2 and on 4 ranks: the
# model of `lockstep train`, to the bit, wherever sums are taken in the same order; where MPI adds in its own, its loss
# to 1e-6 as long as rounding is not amplified (50 steps; 7,035 amplify any difference), and its accuracy at the end.
#
#   tests/long_mpi.sh BUILD
. "$(dirname "$0")/harness.sh"
. "$(dirname "$0")/harness_mpi.sh"
images=/usr/share/datasets/fashion-mnist
[ -d $images ] || images=$source_dir/.cache/datasets/fashion-mnist
[ -d "$images" ] || { echo 'skipped: Fashion-MNIST is not here; scripts/setup --data installs it'; finish; }
cd "$tmp" || exit 1
train=("$build/lockstep" train "$source_dir/recipes/fashion-mnist.yaml" --data.path "$images")

mpi() { # as in the harness, with more time
    local run=("$(mpirun_of "$1")" -n "$2")
    [ "$1" != openmpi ] || run+=(--oversubscribe)
    shift 2
    TMPDIR=$(mktemp -d "$tmp/mpi-XXXXXX") timeout -k 5 1200 "${run[@]}" "$@"
}
run() { # name, command...: leaves its output there
    local name=$1
    shift
    "$@" --run.dir "$name" >"$name.out" 2>&1
}
digest() { sed -n 's/^final.*digest=//p' "$1.out"; }
loss() { printf '%.17g' "$(sed -n 's/^final.*loss=\([^ ]*\).*/\1/p' "$1.out")"; }
accuracy() { sed -n 's/.*test_accuracy=//p' "$1.out" | tail -1; }
same() { [ -n "$(digest "$1")" ] && [ "$(digest "$1")" = "$(digest "$2")" ] || { tail -5 "$1.out" "$2.out"; return 1; }; }
close_to() {
    awk -v a="$(loss "$1")" -v b="$(loss "$2")" 'BEGIN { d = a > b ? a - b : b - a; print a, b; exit !(b > 0 && d <= 1e-6 * b) }'
}

for n in 2 4; do run own-$n "${train[@]}" -n $n; done
run own-50 "${train[@]}" -n 4 --train.steps 50
for mpi in openmpi mpich; do
    have_mpi $mpi || continue
    for n in 2 4; do
        run $mpi-$n mpi $mpi $n "${train[@]}"
        claim "$mpi starts $n ranks, Lockstep's collectives: the same model" same $mpi-$n own-$n
        run $mpi-ranks-$n mpi $mpi $n "${train[@]}" --comm.backend mpi --comm.order ranks
        claim "$mpi's collectives on $n ranks, in rank order: the same model" same $mpi-ranks-$n own-$n
    done
    run $mpi-library-2 mpi $mpi 2 "${train[@]}" --comm.backend mpi
    claim "$mpi's own order of two ranks: the same model" same $mpi-library-2 own-2
    run $mpi-50 mpi $mpi 4 "${train[@]}" --comm.backend mpi --train.steps 50
    claim "$mpi's own order of 4 ranks, 50 steps: the loss to 1e-6" close_to $mpi-50 own-50
    claim "and it says whose order it is" grep -q "reduction order: MPI's own" $mpi-50.out
    run $mpi-library-4 mpi $mpi 4 "${train[@]}" --comm.backend mpi
    claim "$mpi's own order of 4 ranks, the whole recipe: an accuracy above 0.87" \
        awk -v a="$(accuracy $mpi-library-4)" 'BEGIN { print a; exit !(a > 0.87) }'
done
finish
