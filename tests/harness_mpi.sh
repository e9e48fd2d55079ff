# harness_mpi.sh -- for test scripts that start ranks with an mpirun; after harness.sh.
#
#   for mpi in openmpi mpich; do have_mpi $mpi || continue; mpi $mpi 2 "$build/lockstep" ...; done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 LOCKSTEP_PLUGIN_PATH=$build
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT

# The mpirun of an implementation: by Debian's name, or the only one there is.
mpirun_of() {
    local mark
    command -v "mpirun.$1" && return
    case $1 in openmpi) mark='Open MPI\|OpenRTE' ;; *) mark='HYDRA' ;; esac
    mpirun --version 2>/dev/null | grep -q "$mark" && command -v mpirun
}

# Whether ranks can be started and the plugin is built; says what is missing.
have_mpi() {
    if ! mpirun_of "$1" >/dev/null; then
        echo "skipped: no mpirun of $1 here (scripts/setup --mpi installs it)"
    elif [ ! -e "$build/liblockstep_mpi-$1.so" ]; then
        echo "skipped: $build was built without $1's headers (scripts/setup --mpi installs them)"
    else
        return 0
    fi
    return 1
}

mpi() { # implementation, ranks, command...
    local run=("$(mpirun_of "$1")" -n "$2")
    [ "$1" != openmpi ] || run+=(--oversubscribe)
    shift 2
    # a folder of its own: two mpiruns of Open MPI that start at once may fail to share one
    TMPDIR=$(mktemp -d "$tmp/mpi-XXXXXX") timeout -k 5 120 "${run[@]}" "$@"
}
