#!/bin/bash
# long_kills.sh -- 200 trainings, in each of which a random rank or the launcher is killed at a random instant: all end with
# the undisturbed final line. A GPT as small as recipes/gpt2-tiny.yaml, ZeRO stages 0 to 3, in shared memory, over tcp, and
# on two hosts (network namespaces; root alone has these).
#
#   tests/long_kills.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 600
"$lockstep" secret new s >/dev/null || exit 1
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 4, n_head: 4, d_model: 128, seq_len: 64 }
data: { path: $tmp/tokens }
train: { global_batch: 8, seed: 1 }
optim: { name: adamw, lr: 2e-3, clip: 1.0 }
log: { tensorboard: false }
YAML
kills() { python3 "$source_dir/tests/kills.py" "$lockstep" "$@" 2>&1 | tee -a kills.log; return "${PIPESTATUS[0]}"; }
for stage in 0 1 2 3; do
    claim "stage $stage in shared memory: 30 of 30" kills --runs 30 --seed $stage --stage $stage
    copy=$([ $stage = 3 ] && echo --option=--zero.copy=rank) # tcp maps no memory
    # shellcheck disable=SC2086
    claim "stage $stage over tcp: 10 of 10" kills --runs 10 --seed 1$stage --stage $stage --transport tcp $copy
done
claim 'with snapshots in shared memory: 20 of 20, at most one step again' kills --runs 20 --seed 30 --snapshot 1
claim 'with snapshots over tcp: 10 of 10' kills --runs 10 --seed 31 --stage 1 --snapshot 1 --transport tcp
sed 's/^model:.*/model: { name: moe, n_layer: 4, n_head: 4, d_model: 64, d_expert: 64, n_experts: 8, seq_len: 64 }/' gpt.yaml >moe.yaml
claim 'experts, ep 2: 20 of 20' kills --recipe moe.yaml --option=--parallel.ep=2 --option=--moe.bias_rate=0.01 --runs 20 --seed 40
claim 'experts, ep 2 x dp 2, stage 2, over tcp: 10 of 10' kills --recipe moe.yaml --option=--parallel.ep=2 --ranks 4 --runs 10 --seed 41 \
    --stage 2 --transport tcp
claim 'experts with snapshots: 10 of 10' kills --recipe moe.yaml --option=--parallel.ep=2 --runs 10 --seed 42 --snapshot 1
a=lska$$ b=lskb$$
if ip netns add "$a" 2>/dev/null; then
    trap 'ip netns del "$a"; ip netns del "$b"; rm -rf "$tmp"' EXIT
    ip netns add "$b"
    ip -n "$a" link add "$a" type veth peer name "$b" netns "$b"
    ip -n "$a" addr add 10.99.8.1/24 dev "$a"
    ip -n "$b" addr add 10.99.8.2/24 dev "$b"
    for ns in "$a" "$b"; do ip -n "$ns" link set "$ns" up; ip -n "$ns" link set lo up; done
    for stage in 0 1 2 3; do
        claim "stage $stage on two hosts: 10 of 10" kills --runs 10 --seed 2$stage --stage $stage --ranks 1 --addr 10.99.8.1 \
            --nodes "ip netns exec $a;ip netns exec $b"
        [ $stage != 0 ] || claim 'with snapshots on two hosts: 10 of 10' kills --runs 10 --seed 32 --snapshot 1 --ranks 1 --addr 10.99.8.1 \
            --nodes "ip netns exec $a;ip netns exec $b"
    done
else
    echo 'kills on two hosts need root'
fi
cat kills.log
finish
