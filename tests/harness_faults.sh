# harness_faults.sh -- what the tests of `lockstep train` with a fault share: a job with one, what its report says, what it leaves.
. "$(dirname "$0")/harness_train.sh"

# Everything that could outlive a job: processes, with our folder in their arguments; shared memory and sockets with a
# name; temporary files. Other sockets go with the last process that has them.
litter() {
    pgrep -af -- "$tmp/"
    awk '/lockstep/ { print $NF }' /proc/net/unix
    ls -A /dev/shm | grep -i lockstep
    find "$tmp" -name '*.tmp*'
}
# Other tests run beside this one, so what was there before does not count, nor does what goes away.
nothing_left() {
    litter | sort | comm -13 before - >left
    for _ in {1..1000}; do
        [ -s left ] || return 0
        sleep 0.05
        litter | sort | comm -12 left - >still
        mv still left
    done
    cat left
    return 1
}

# Trains over $1 with the fault $2 and more options; leaves out, err, code, and took in ms. The marker in
# the arguments is what litter looks for.
fault() {
    local transport=$1 what=$2 start=${EPOCHREALTIME/./}
    shift 2
    litter | sort >before
    rm -rf "$tmp/run"
    train "${ranks:-2}" --comm.transport "$transport" --inject "$what" --run.dir "$tmp/run" --train.epochs 5 "$@"
    took=$(((${EPOCHREALTIME/./} - start) / 1000))
}
# The report has this code word, rank 1 and step 5. Before it may only stand what the rank that failed
# says about the same.
blames() {
    [[ $(head -1 err) == lockstep*"error[$1]"* ]] &&
        grep -m1 '^lockstep: ' err | grep -qE "error\[$1\] gen=1 step=5 rank=${2:-1} host=[^ ]+ pid=[0-9]+: " || { cat err; return 1; }
}
first_line_blames() { head -1 err | grep -q '^lockstep: ' && blames "$@"; }
