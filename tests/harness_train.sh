# harness_train.sh -- what the tests of `lockstep train` share: a small run on real images.
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep data=$source_dir/tests/data/fashion-2000
cd "$tmp" || exit 1
cat >base.yaml <<YAML
model: { name: mlp, dims: [784, 64, 10] }
data: { name: fashion-mnist, path: $data }
train: { epochs: 1, global_batch: 96, seed: 3 }
optim: { name: sgd, lr: 0.05 }
YAML

# Trains on $1 ranks with more options; leaves out, err and code.
train() {
    local ranks=$1
    shift
    timeout -k 5 60 "$lockstep" train base.yaml --nproc-per-node "$ranks" "$@" >out 2>err
    code=$?
}
final() { tail -1 out; }
loss() { sed -nE '$s/.* loss=([^ ]+) .*/\1/p' "${1:-out}"; }
says() { grep -qF -- "$1" err || { cat err; return 1; }; }
prints() { grep -qE -- "$1" out || { cat out; return 1; }; }
ends_with() { [ "$code" = "$1" ] || { echo "exit status $code, expected $1"; cat err; return 1; }; }

# Runs a command until it succeeds, for at most 100 s: longer is a hang.
until_true() {
    for _ in {1..10000}; do
        "$@" && return 0
        sleep 0.01
    done
    return 1
}
