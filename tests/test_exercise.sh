#!/bin/bash
# test_exercise.sh -- the exercise's scripts against PyTorch on gloo, and what they do
# with wrong input. What the four functions do inside a process: test_train_ddp.c.
#
#   tests/test_exercise.sh BUILD
. "$(dirname "$0")/harness.sh"
ddp=$build/examples/train_ddp single=$build/examples/train_single
cd "$tmp" || exit 1
export MASTER_PORT # a free one, so that tests may run beside each other; the exercise's own is below
MASTER_PORT=$("$build/lockstep" run --nproc-per-node 1 sh -c 'echo $MASTER_PORT')

# --- epoch losses: world size, seed, then what PyTorch 1.13 prints on gloo with one thread --------
same_losses() { # world size, losses...: each within one unit of the last digit
    local size=$1 out
    shift
    out=$("$ddp" --world-size "$size" --d-in 64 --d-hidden 128 --d-out 10 --epochs 10 --init torch --seed "$seed" \
        --out "m$size.safetensors") || return 1
    diff <(printf 'Epoch %d, Loss:\n' {0..9}; echo 'Model saved from rank 0.') <(sed 's/\(Loss:\) .*/\1/' <<<"$out") || return 1
    paste -d' ' <(printf '%s\n' "$@") <(sed -n 's/.*Loss: //p' <<<"$out") |
        awk '{ d = ($1 - $2) * 10000; if (d > 1.5 || d < -1.5) { print "PyTorch " $1 ", here " $2; bad = 1 } } END { exit bad }'
}
while read -r size seed losses; do
    # shellcheck disable=SC2086
    claim "prints PyTorch's losses on $size ranks with seed $seed" same_losses "$size" $losses
done <<'LOSSES'
1 1234 2.3274 2.2430 2.1936 2.1454 2.0926 2.0403 1.9896 1.9318 1.8693 1.8177
2 1234 2.3246 2.2557 2.2221 2.1937 2.1492 2.1171 2.0812 2.0095 1.9835 1.9624
4 1234 2.3328 2.2870 2.2501 2.2187 2.1835 2.1636 2.1501 2.1227 2.0776 2.0804
1 7 2.3246 2.2444 2.1922 2.1412 2.0900 2.0353 1.9905 1.9337 1.8730 1.8243
2 7 2.3176 2.2697 2.2115 2.1794 2.1384 2.1027 2.0724 2.0163 1.9859 1.9749
4 7 2.3148 2.2945 2.2413 2.1922 2.1815 2.1507 2.1559 2.1225 2.0861 2.0881
1 99 2.3271 2.2418 2.1924 2.1416 2.0892 2.0362 1.9895 1.9328 1.8731 1.8231
2 99 2.3185 2.2627 2.2270 2.1920 2.1478 2.1080 2.0668 2.0060 1.9788 1.9602
4 99 2.3251 2.2781 2.2604 2.2039 2.1903 2.1600 2.1327 2.1169 2.0704 2.0771
LOSSES

# --- the same result by every way of starting ---------------------------------------------------------
lines() { "$@" 2>&1 | grep Epoch; }
"$single" --epochs 3 --seed 5 --out s.safetensors | grep Epoch >single
"$ddp" --world-size 2 --epochs 3 --seed 5 --out a.safetensors | grep Epoch >two
claim 'one rank prints what the script without DDP prints' diff single <(lines "$ddp" --world-size 1 --epochs 3 --seed 5)
claim 'two ranks do not, they see other batches' test "$(cat two)" != "$(cat single)"
claim 'tcp prints the same' diff two <(lines "$ddp" --world-size 2 --epochs 3 --seed 5 --transport tcp)
claim 'lockstep run prints the same' \
    diff two <(lines "$build/lockstep" run --nproc-per-node 2 "$ddp" --epochs 3 --seed 5 --out b.safetensors)
claim 'and saves the same bytes' cmp a.safetensors b.safetensors

# --- R81: the loss is rank 0's own; with --global-loss the mean over all ranks stands beside it --------------
# With a learning rate of 0 the model stays as it is, and the mean over all samples is the same on any number of ranks.
global() { "$ddp" --world-size "$1" --epochs 2 --lr 0 --seed 5 --global-loss --out g.safetensors; }
mean() { global "$1" | sed -n 's/^Epoch [01], Loss: [0-9.]* on rank 0, \([0-9.]*\) over all ranks$/\1/p'; }
own() { global "$1" | sed -n 's/^Epoch [01], Loss: \([0-9.]*\) on rank 0, .*/\1/p'; }
near() { paste -d' ' <(printf '%s\n' "$1") <(printf '%s\n' "$2") | awk '{ d = $1 - $2; if (d > 1.5e-4 || d < -1.5e-4 || NF != 2) exit 1; n++ } END { exit n != 2 }'; }
one=$(mean 1) two=$(mean 2)
claim 'R81 the mean over 2 ranks is the mean over all samples' near "$one" "$two"
same_size() { paste -d' ' <(printf '%s\n' "$1") <(printf '%s\n' "$2") | awk '{ d = $1 - $2; if (d > 0.02 || d < -0.02) exit 1 }'; }
claim 'R81 on one rank both are the same, to a last batch that is smaller' same_size "$one" "$(own 1)"
claim 'R81 the loss of rank 0 is not' test "$(own 2)" != "$two"
claim 'R81 without --global-loss only rank 0 speaks, in the form of the script' \
    test "$("$ddp" --world-size 2 --epochs 1 --out g.safetensors | grep -cE '^Epoch 0, Loss: [0-9]+\.[0-9]{4}$')" = 1

# --- R17: which cores each rank has is in its log, before the first epoch ---------------------------------------
LOCKSTEP_DEBUG=info "$ddp" --world-size 2 --epochs 1 --out g.safetensors >devices 2>&1
for rank in 0 1; do
    claim "R17 rank $rank says its device" grep -qE "\[rank $rank\] device: CPUs [0-9,-]+; local rank $rank of 2" devices
done
wrong_device() { RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2 "$ddp"; }
claim 'R17 a device that is not there is refused' fails_with 64 'LOCAL_RANK is 2 of 2' wrong_device

# --- the saved model --------------------------------------------------------------------------------
claim 'every byte of the model is covered by a digest' "$build/lockstep" ckpt verify a.safetensors
claim 'it has the names of a module whose layers are self.net, without module.' \
    diff <(printf '%s\n' net.0.bias net.0.weight net.2.bias net.2.weight) <("$build/lockstep" ckpt ls a.safetensors | grep -oE '^  [a-z0-9.]+' | tr -d ' ' | sort)
evaluate() { "$build/lockstep" train --data.name synthetic --model.dims "$1" --eval-only --model.load a.safetensors; }
claim 'a plain model loads it' has_line 'test_loss=' evaluate 64,128,10
claim 'one of another shape does not' fails_with 65 "'net.0.weight' has shape [128, 64], the model's has [96, 64]" evaluate 64,96,10
claim 'ranks leave one file and nothing else' diff <(echo a.safetensors) <(ls | grep '^a\.')

# --- ranks started by hand, and a port that is taken ----------------------------------------------------
port=$MASTER_PORT
by_hand() { RANK=$1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$ddp" --epochs 3 --seed 5 --out h.safetensors; }
by_hand 0 >hand 2>&1 &
for _ in {1..1000}; do
    # field 2 of /proc/net/tcp is address:port in hexadecimal, field 4 is 0A in a socket that listens
    grep -q "^ *[0-9]*: 0100007F:$(printf %04X "$port") .* 0A " /proc/net/tcp && break
    sleep 0.01
done
unset MASTER_PORT
claim 'R9 a port in use is named' fails_with 69 "port $port on 127.0.0.1 is held by pid " "$ddp" --world-size 2 --port "$port"
claim 'R9 with the program that holds it' fails_with 69 '(train_ddp): use another port' "$ddp" --world-size 2 --port "$port"
claim 'R9 port 0 is any free one' has_line 'Model saved from rank 0.' "$ddp" --world-size 2 --port 0 --epochs 1 --out p.safetensors
by_port() { MASTER_PORT=$port "$ddp" --world-size 2; }
claim 'R9 MASTER_PORT is the port' fails_with 69 "port $port on 127.0.0.1 is held by pid " by_port
claim 'R9 the default is 12355' has_line '12355' "$ddp" --help
claim 'a second rank 0 at that port is refused' fails_with 69 "port-busy" by_hand 0
claim 'rank 1 joins from another shell' by_hand 1
wait $!
claim 'and rank 0 prints the same losses' diff two <(grep Epoch hand)
without() { env -u "$1" "$ddp"; }
export RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
for name in RANK WORLD_SIZE; do
    claim "by hand without $name names it" fails_with 64 "environment variable $name is not set" without $name
done
unset RANK WORLD_SIZE MASTER_ADDR

# --- wrong input: one line, the right code ----------------------------------------------------------------
claim 'an unknown flag is an error with the nearest name' fails_with 64 "unknown option '--epoch'; did you mean '--epochs'?" "$ddp" --epoch 3
claim 'and so it is without DDP' fails_with 64 "unknown option '--world-size'" "$single" --world-size 2
claim 'an argument that is no option is one' fails_with 64 "'2' is no option" "$ddp" 2
claim 'a value out of range names the range' fails_with 64 '1..256' "$ddp" --world-size 257
claim 'a folder that is not there names the file' fails_with 74 'nowhere/m.safetensors' "$ddp" --epochs 0 --out nowhere/m.safetensors
claim 'an unknown transport names those there are' fails_with 78 'expected one of shm, tcp' "$ddp" --transport pigeon
claim '--help lists the options' has_line '--world-size' "$ddp" --help

# --- the demo --------------------------------------------------------------------------------------------------
"$ddp" --world-size 2 --port 0 --epochs 2 --no-sampler --out unsharded >/dev/null 2>warned || exit 1
"$ddp" --world-size 2 --port 0 --epochs 2 --out sharded >/dev/null 2>silent || exit 1
claim 'R35 ranks with the same samples are warned of, once' test "$(grep -c 'all 2 ranks have the same 32 sample ids in their first batch' warned)" = 1
claim 'R35 with a sampler there is no warning' test "$(grep -c 'sample ids' silent)" = 0
"$build/examples/demo_ddp_concepts" >demo || exit 1
claim 'R85 the demo has three parts, with their headings in order' \
    diff <(printf '%s\n' '1. DistributedSampler' '2. Gradient AllReduce' '3. Parameter sync') <(grep -oE '^[0-9]\. [^:]*' demo)
claim 'R85 and the command for a real launch' grep -q 'train_ddp --world-size 2' demo
as_printed() { # in a folder where build/examples is
    mkdir -p pasted/build && ln -sfn "$build/examples" pasted/build/examples && cd pasted || return 1
    eval "MASTER_PORT=$port $(sed -n 's/^   \(build\/examples\/train_ddp .*\)/\1/p' ../demo)"
}
(as_printed) >pasted_lines 2>&1
claim 'R87 the printed command trains' test "$(grep -c '^Epoch' pasted_lines)" = 10
claim 'R232 R233 and has the sizes, epochs and ranks of a run without options' \
    diff pasted_lines <(MASTER_PORT=$port "$ddp" --out defaults.safetensors)
claim 'R232 R233 which are those of the runs beside PyTorch' \
    diff <(MASTER_PORT=$port "$ddp" --seed 1234 --out defaults.safetensors) \
        <(MASTER_PORT=$port "$ddp" --world-size 2 --d-in 64 --d-hidden 128 --d-out 10 --epochs 10 --batch 32 --lr 1e-3 --seed 1234 --init torch \
            --out defaults.safetensors)
claim 'R236 the third part has a model 4-8-2, SGD with 0.01 and a batch of 4' \
    test "$(grep -cE 'dims\[3\] = \{ 4, 8, 2 \}, xdim\[2\] = \{ 4, 4 \}|oc\.lr = 0\.01;' "$source_dir/examples/demo_ddp_concepts.c")" = 2
sees() { grep -qxF "   rank $1 sees samples: $2" demo; }
claim 'rank 0 of the demo sees every fourth sample' sees 0 '0 4 8 12 16'
claim 'rank 3 sees the rest' sees 3 '3 7 11 15 19'
mean_is_right() { # four gradients of three values and their mean, printed with 4 decimals
    awk -F'[][]' '/gradient:/ { split($2, v, " "); n++; for (i = 1; i <= 3; i++) sum[i] += v[i] }
        /averaged:/ { split($2, v, " "); for (i = 1; i <= 3; i++) { d = v[i] - sum[i] / 4; if (d < 0) d = -d; if (d > 1.01e-4) bad = 1 } ok = 1 }
        END { exit !(n == 4 && ok && !bad) }' demo
}
claim 'the averaged gradient is the mean of the four' mean_is_right
claim 'and every rank has it' grep -qx '   all ranks now have this same averaged gradient' demo
claim 'four digests are printed' test "$(grep -c 'rank [0-3] parameters after a step: digest' demo)" = 4
claim 'and are one' test "$(grep -oE 'digest [0-9a-f]{32}' demo | sort -u | wc -l)" = 1

# --- the difference of the two scripts ----------------------------------------------------------------------------
claim 'DDP adds at most 15 lines outside of its four functions' "$source_dir/tools/check-exercise-diff"
grown() { # a copy of train_ddp.c with more lines outside
    { cat "$source_dir/examples/train_ddp.c"; printf 'static int more_%d;\n' {1..16}; } >grown.c
    ! "$source_dir/tools/check-exercise-diff" "$source_dir/examples/train_single.c" "$PWD/grown.c"
}
claim 'and a script that adds more is noticed' grown
renamed() {
    sed 's/cleanup_ddp/tidy_up/' "$source_dir/examples/train_ddp.c" >renamed.c
    ! "$source_dir/tools/check-exercise-diff" "$source_dir/examples/train_single.c" "$PWD/renamed.c"
}
claim 'and so is one without the function' renamed
finish
