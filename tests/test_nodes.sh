#!/bin/bash
# nodes: a job of several launchers, as if on several hosts: joining, secrets, and who is to blame when one goes.
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
data=$source_dir/tests/data/fashion-2000
cd "$tmp" || exit 1


# A launcher of one node: node R of N, with K ranks, then flags and "-- program".
node() {
    local rank=$1 nodes=$2 ranks=$3
    shift 3
    timeout -k 5 100 "$lockstep" run --nnodes "$nodes" --node-rank "$rank" --master-addr 127.0.0.1 --master-port "$port" \
        --nproc-per-node "$ranks" "$@" >"out$rank" 2>"err$rank"
    echo $? >"code$rank"
}
both() { # K, flags and program: two nodes of K ranks
    rm -f code[01]
    node 1 2 "$@" &
    node 0 2 "$@"
    wait
}
says() { grep -q -- "$2" "$1" || { cat "$1"; return 1; }; } # file, text

port=$(free_port)
claim 'makes a secret' "$lockstep" secret new s
claim 'which only its owner can read' test "$(stat -c %a s)" = 600
claim 'of 64 hex digits' grep -qxE '[0-9a-f]{64}' s
claim 'and leaves one alone that is there' fails_with 74 'exists already' "$lockstep" secret new s
claim 'another command is refused' fails_with 64 'lockstep secret new' "$lockstep" secret old

# shellcheck disable=SC2016
both 2 --secret-file s -- sh -c 'echo "$RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_WORLD_SIZE $MASTER_ADDR"'
claim 'both nodes end in order' test "$(cat code0)$(cat code1)" = 00
claim 'ranks are numbered by node' test "$(sort out0 out1 | cut -d' ' -f1 | tr '\n' ' ')" = '0 1 2 3 '
claim 'and have the environment of torchrun' test "$(sort out1)" = '2 0 1 4 2 2 127.0.0.1
3 1 1 4 2 2 127.0.0.1'

port=$(free_port)
cpus=$(taskset -cp $$ | sed 's/.*: //')
taskset -cp "${cpus%%[,-]*}" $$ >/dev/null # where two ranks share a core
both 2 --secret-file s -- cat /proc/self/personality
taskset -cp "$cpus" $$ >/dev/null
claim 'ranks of several nodes keep random addresses' test "$(sort -u out0 out1)" = "$(cat /proc/self/personality)"

port=$(free_port)
both 2 --secret-file s -- "$lockstep" bench all_reduce --transport tcp -b 8 -e 8K -f 32 -n 2
claim 'four ranks on two nodes reduce' test "$(cat code0)$(cat code1)" = 00
claim 'with right results' says out0 '# Out of bounds values : 0 OK'

# unequal numbers of ranks
port=$(free_port)
node 1 2 1 --secret-file s -- "$lockstep" bench all_reduce --transport tcp -b 8 -e 8 -n 1 &
node 0 2 2 --secret-file s -- "$lockstep" bench all_reduce --transport tcp -b 8 -e 8 -n 1
wait
claim 'two ranks here and one there' test "$(cat code0)$(cat code1)" = 00

# an address that the launcher would not find out by itself
port=$(free_port)
# shellcheck disable=SC2016
node 1 2 1 --secret-file s --local-addr 127.0.0.2 --tee 1 --log-line-prefix-template '$rank/$local_rank: ' -- \
    sh -c 'echo "at $LOCKSTEP_ADDRESS"; exec "$0" bench all_reduce --transport tcp -b 8 -e 8 -n 1' "$lockstep" &
node 0 2 1 --secret-file s -- "$lockstep" bench all_reduce --transport tcp -b 8 -e 8 -n 1
wait
claim '--local-addr: both nodes end in order' test "$(cat code0)$(cat code1)" = 00
claim '--local-addr: the address that the others are told' says out1 '^1/0: at 127\.0\.0\.2$'

# by hand, without a launcher
port=$(free_port)
by_hand() { # rank, local rank
    RANK=$1 WORLD_SIZE=4 LOCAL_RANK=$2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port LOCKSTEP_SECRET_FILE=s \
        timeout -k 5 60 "$lockstep" bench all_reduce --transport tcp -b 8 -e 8K -f 32 -n 2 >"hand$1" 2>&1
    echo $? >"code$1"
}
by_hand 3 1 & by_hand 1 1 & by_hand 2 0 & by_hand 0 0
wait
claim 'ranks started by hand join too' test "$(cat code0 code1 code2 code3 | tr -d '\n')" = 0000
claim 'and are right' says hand0 '# Out of bounds values : 0 OK'

# --- who may not join ------------------------------------------------------------------------------
"$lockstep" secret new other >/dev/null
one_fails() { # node, code, text, flags: a node that is refused before it starts anything
    local rank=$1 code=$2 text=$3
    shift 3
    node "$rank" 2 1 "$@" -- true
    [ "$(cat "code$rank")" = "$code" ] || { echo "exit $(cat "code$rank")"; cat "err$rank"; return 1; }
    says "err$rank" "$text"
}
port=$(free_port)
claim 'no secret' one_fails 0 77 'lockstep secret new'
claim 'another address without a secret' fails_with 77 'lockstep secret new' "$lockstep" run --listen 0.0.0.0 -- true
claim 'the loopback needs none' "$lockstep" run --listen 127.0.0.1 -- true
chmod 640 other
claim 'a secret that others can read' one_fails 0 77 'unsafe-mode.*chmod 600' --secret-file other
chmod 600 other
ln -s other link
claim 'a link to one' one_fails 0 77 'unsafe-path' --secret-file link
mkfifo pipe
claim 'a pipe' one_fails 0 77 'unsafe-path' --secret-file pipe
head -c 63 other >short && chmod 600 short
claim 'too few digits' one_fails 0 65 '64 hex digits' --secret-file short
tr '0-9a-f' 'g-v' <other >letters && chmod 600 letters
claim 'other letters' one_fails 0 65 '64 hex digits' --secret-file letters
claim 'a file that is not there' one_fails 0 74 'nofile' --secret-file nofile
claim 'a node of its own number' one_fails 2 64 'expected 0 to 1' --secret-file s
claim 'an address of node 0 at which it does not listen' one_fails 0 64 'give it --listen 127.0.0.9' --secret-file s \
    --local-addr 127.0.0.9
claim 'a node that never comes is named' one_fails 0 69 '1 of 2 nodes joined.*missing node 1' --secret-file s \
    --rdzv-conf join_timeout=0.5
claim 'nobody to meet' one_fails 1 69 'is node 0 running' --secret-file s --rdzv-conf join_timeout=0.5

node 0 2 1 --secret-file s --rdzv-conf join_timeout=20 -- true &
sleep_until() { for _ in $(seq 1200); do "$@" && return; sleep 0.05; done; return 1; } # longer is a hang
listens() { (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
sleep_until listens
claim 'another secret is refused' one_fails 1 77 'auth-failed.*could not prove' --secret-file other
claim 'and another job' one_fails 1 77 'could not prove' --secret-file s --rdzv-id other
claim 'and another number of nodes' eval 'node 2 3 1 --secret-file s -- true; says err2 "nnodes must be the same"'
claim 'the right one still comes in' eval 'node 1 2 1 --secret-file s -- true; test "$(cat code1)" = 0'
wait
claim 'and the job is well' test "$(cat code0)" = 0

# --- where the secret may not be ---------------------------------------------------------------------
# Every process of the job shows its environment and its command; everything that is written down is kept.
cat >look <<'LOOK'
#!/bin/bash
for p in /proc/[0-9]*; do
    grep -qs LOCKSTEP_SECRET_FD "$p/environ" || grep -qsa node-rank "$p/cmdline" || continue
    cat "$p/environ" "$p/cmdline" 2>/dev/null
done >"seen.$RANK"
exec "$@"
LOOK
chmod +x look
port=$(free_port)
LOCKSTEP_DEBUG=debug both 1 --secret-file s --log-dir logs --tee 3 --events events -- ./look "$lockstep" train \
    "$source_dir/recipes/fashion-mnist.yaml" --data.path "$data" --comm.transport tcp --train.steps 3 --trace.steps 1:3 \
    --run.dir searched
claim 'a job that shows everything' test "$(cat code0)$(cat code1)" = 00
claim 'has looked at its processes' grep -qa LOCKSTEP_SECRET_FD seen.0
hex=$(cat s)
nowhere() { # the secret in any form, in any file but its own
    python3 - "$hex" <<'PY'
import os, sys
hexa = sys.argv[1].encode()
for folder, _, names in os.walk("."):
    for name in names:
        path = os.path.join(folder, name)
        if name in ("s", "pipe") or not os.path.isfile(path): continue
        data = open(path, "rb").read()
        if hexa in data.lower() or bytes.fromhex(hexa.decode()) in data: sys.exit("the secret stands in " + path)
PY
}
claim 'writes the secret nowhere' nowhere
cp s found && claim 'which a search would find' eval '! nowhere'
rm found

# --- faults -----------------------------------------------------------------------------------------
train() { # flags: two nodes of two ranks
    port=$(free_port)
    both 2 --secret-file s -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" --data.path "$data" \
        --comm.transport tcp --train.epochs 1 "$@"
}
train --inject kill@3:5 --checkpoint.every 2
claim 'a killed rank ends the job on both nodes' test "$(cat code0)/$(cat code1)" = 82/82
claim 'its own launcher names it' says err1 'error\[rank-died\].* rank=3 .*: was killed by signal 9'
claim 'and so does the other' says err0 'error\[rank-died\].* rank=3 .*: was killed by signal 9'
claim 'node 0 names the newest checkpoint' says err0 '  checkpoint: the newest checkpoint of this run is runs/.*/step-00000004 (step 4)$'
train --inject mismatch@2:5
claim 'a mismatch is named on node 0' says err0 'error\[coll-mismatch\]'
claim 'and on node 1' says err1 'error\[coll-mismatch\]'

gone() { # node that is killed, the other one, what that says
    port=$(free_port)
    rm -f code[01]
    for r in 1 0; do
        "$lockstep" run --nnodes 2 --node-rank $r --master-addr 127.0.0.1 --master-port "$port" --secret-file s \
            --nproc-per-node 1 --events "events$r" -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" \
            --data.path "$data" --comm.transport tcp --train.epochs 10000 --run.dir "gone$1" >"out$r" 2>"err$r" &
        pid[r]=$!
    done
    sleep_until grep -q '"event":"step"' events0 || { cat err0; return 1; }
    kill -9 "${pid[$1]}"
    local t0=${EPOCHREALTIME/./}
    wait "${pid[$2]}"
    local code=$? ms=$(((${EPOCHREALTIME/./} - t0) / 1000))
    rm -f events[01]
    [ $code = 82 ] || { echo "exit $code"; cat "err$2"; return 1; }
    [ $ms -lt 25000 ] || { echo "after $ms ms"; return 1; } # when a deadline of the ranks would have passed
    says "err$2" "$3"
}
stopped() { # signal, code of both: node 0 is told to stop
    port=$(free_port)
    rm -f events[01]
    for r in 1 0; do # a shell's background jobs ignore SIGINT
        python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' \
            "$lockstep" run --nnodes 2 --node-rank $r --master-addr 127.0.0.1 --master-port "$port" --secret-file s \
            --nproc-per-node 1 --events "events$r" -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" \
            --data.path "$data" --comm.transport tcp --train.epochs 10000 --run.dir "stopped$1" >"out$r" 2>"err$r" &
        pid[r]=$!
    done
    sleep_until grep -q '"event":"step"' events0 || { cat err0; return 1; }
    kill -"$1" "${pid[0]}"
    wait "${pid[0]}"
    local code0=$?
    wait "${pid[1]}"
    local code1=$?
    rm -f events[01]
    [ $code0/$code1 = "$2/$2" ] || { echo "exit $code0 and $code1"; cat err0 err1; return 1; }
    ! grep -q 'rank-died' err0 err1 || { cat err0 err1; return 1; }
}
claim 'Ctrl-C on one node stops both' stopped INT 130
claim 'SIGTERM on one node saves and ends both to be queued again' stopped TERM 75
claim 'a launcher that is killed takes its node along' gone 1 0 'error\[peer-silent\].*node 1 (host .* is gone'
claim 'node 0 as well' gone 0 1 'error\[peer-silent\].*node 0 (127.0.0.1:.* is gone'

# A launcher that is stopped: for two seconds, and for good.
stopped_launcher() { # --node-timeout's value, how long node 1's launcher is stopped (empty: for good)
    port=$(free_port)
    rm -f code[01] events[01]
    for r in 1 0; do
        "$lockstep" run --nnodes 2 --node-rank $r --master-addr 127.0.0.1 --master-port "$port" --secret-file s \
            --nproc-per-node 1 --node-timeout "$1" --events "events$r" -- "$lockstep" train \
            "$source_dir/recipes/fashion-mnist.yaml" --data.path "$data" --comm.transport tcp --train.epochs 10000 \
            --run.dir "silent$1" >"out$r" 2>"err$r" &
        pid[r]=$!
    done
    sleep_until grep -q '"event":"step"' events0 || { cat err0; return 1; }
    kill -STOP "${pid[1]}"
    if [ -n "$2" ]; then
        sleep "$2" # no state to wait for: that nothing happens is the claim
        kill -CONT "${pid[1]}"
        kill -0 "${pid[0]}" && kill -TERM "${pid[0]}"
    fi
    wait "${pid[0]}"
    local code=$?
    kill -CONT "${pid[1]}"
    wait "${pid[1]}"
    echo "exit $code"
    return $code
}
claim 'a launcher that is stopped for 2 s is waited for' eval 'stopped_launcher 60s 2; test $? = 75 || { cat err0; false; }'
claim 'a launcher that is silent for longer than --node-timeout is gone' \
    eval 'stopped_launcher 3s ""; test $? = 82 && says err0 "node 1 (host .* nothing was heard of it for 3.[0-9] s"'
claim 'the limit has a range' fails_with 64 'node-timeout: expected a time' "$lockstep" run --node-timeout 400ms -- true

# --- two network namespaces: addresses that are not the loopback, and a cable to pull ------------------
a=lsta$$ b=lstb$$
if ip netns add "$a" 2>/dev/null; then
    trap 'ip netns del "$a"; ip netns del "$b"' EXIT
    ip netns add "$b"
    ip -n "$a" link add "$a" type veth peer name "$b" netns "$b"
    ip -n "$a" addr add 10.99.7.1/24 dev "$a"
    ip -n "$b" addr add 10.99.7.2/24 dev "$b"
    for ns in "$a" "$b"; do ip -n "$ns" link set "$ns" up; ip -n "$ns" link set lo up; done
    spaces=("$a" "$b")
    host() { # node, flags and program
        local r=$1
        shift
        ip netns exec "${spaces[r]}" timeout -k 5 60 "$lockstep" run --nnodes 2 --node-rank "$r" --master-addr 10.99.7.1 \
            --nproc-per-node 1 "$@" >"out$r" 2>"err$r"
        echo $? >"code$r"
    }
    two_hosts() {
        rm -f code[01]
        host 1 "$@" &
        host 0 "$@"
        wait
    }
    two_hosts --secret-file s -- "$lockstep" bench all_reduce --transport tcp -b 8 -e 1M -f 32 -n 2
    claim 'two hosts reduce' test "$(cat code0)$(cat code1)" = 00
    claim 'with right results' says out0 '# Out of bounds values : 0 OK'
    host 0 -- true
    claim 'an address that others reach needs a secret' says err0 'error\[auth-failed\].*lockstep secret new'
    steps=(--data.path "$data" --comm.transport tcp --train.epochs 1 --train.steps 4)
    two_hosts --secret-file s -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" "${steps[@]}"
    claim 'two hosts train' test "$(cat code0)$(cat code1)" = 00
    claim 'encrypted, which needs no word' eval '! grep -q "comm.security" err0'
    digest=$(grep ^final out0)
    two_hosts --secret-file s -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" "${steps[@]}" --comm.security auth
    claim 'unencrypted when told, which is said once' test "$(cat err0 err1 | grep -c 'comm.security auth')" = 1
    claim 'with the same result' test "$(grep ^final out0)" = "$digest"

    cable_pulled() {
        rm -f code[01] events0
        host 1 --secret-file s --node-timeout 3s -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" \
            --data.path "$data" --comm.transport tcp --train.epochs 10000 --run.dir pulled &
        host 0 --secret-file s --node-timeout 3s --events events0 -- "$lockstep" train "$source_dir/recipes/fashion-mnist.yaml" \
            --data.path "$data" --comm.transport tcp --train.epochs 10000 --run.dir pulled &
        sleep_until grep -q '"event":"step"' events0 || { cat err0; return 1; }
        local t0=${EPOCHREALTIME/./}
        ip -n "$a" link set "$a" down
        wait
        local ms=$(((${EPOCHREALTIME/./} - t0) / 1000))
        ip -n "$a" link set "$a" up
        [ "$(cat code0)/$(cat code1)" = 82/82 ] || { echo "exit $(cat code0) $(cat code1)"; cat err0 err1; return 1; }
        [ $ms -lt 25000 ] || { echo "after $ms ms"; return 1; } # when a deadline of the ranks would have passed
        says err0 'error\[peer-silent\].*node 1 (host .* nothing was heard of it for 3.[0-9] s' &&
            says err1 'error\[peer-silent\].*node 0 (10.99.7.1:29500) .* nothing was heard of it for 3.[0-9] s'
    }
    claim 'a cable that is pulled is noticed on both sides' cable_pulled
else
    echo 'skipped: tests between two hosts: network namespaces are not permitted here'
fi
finish
