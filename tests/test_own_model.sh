#!/bin/bash
# test_own_model.sh -- a user's program: compiled with pkg-config against an installed tree, trained on 1 and 4 ranks.
# What docs/your-own-model.md promises.
#
#   tests/test_own_model.sh BUILD
. "$(dirname "$0")/harness.sh"
command -v pkg-config >/dev/null || { echo 'skipped: no pkg-config'; exit 0; }
cd "$tmp" || exit 1

DESTDIR=$tmp/tree cmake --install "$build" >install.log 2>&1 || { cat install.log; exit 1; }
pc=$(find tree -name lockstep.pc)
claim 'what is installed has a pkg-config file' test -n "$pc"
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$tmp/tree
claim 'it knows the version' test "$(pkg-config --modversion lockstep)" = "$("$build/lockstep" --version | sed 's/^lockstep \([0-9.]*\).*/\1/')"
sanitize=$(sed -n 's/^LOCKSTEP_SANITIZE:STRING=\(..*\)/-fsanitize=\1/p' "$build/CMakeCache.txt")
# shellcheck disable=SC2046,SC2086
claim 'the program compiles without a warning' "${CC:-cc}" -std=c17 -O2 -Wall -Wextra -Werror $sanitize \
    "$source_dir/examples/own_model.c" $(pkg-config --cflags --libs lockstep) -lm -o own_model
LD_LIBRARY_PATH=$(dirname "$(find "$tmp/tree" -name liblockstep.so)")
export LD_LIBRARY_PATH
run=$(find "$tmp/tree" -path '*bin/lockstep')

losses() { awk '/^step/ { print $2, $4 }' "$1"; }
./own_model "$source_dir/LICENSE" >one || exit 1
mv own_model.safetensors one.safetensors
"$run" run --nproc-per-node 4 ./own_model "$source_dir/LICENSE" >four || exit 1
claim 'four ranks are four' grep -qx 'ranks 4, parameters [0-9]*' four
claim 'it begins no better than guessing, and learns' \
    awk 'NR == FNR && /^step/ { if (!first) first = $4; last = $4 } END { exit !(first > 4.8 && last < 0.1) }' one one
# The same sums in another order: an update differs by some 1e-7 of its weight, and a thousand of them add up.
agree() { paste -d' ' <(losses one) <(losses four) | awk '{ d = $2 - $4; if (d > 1e-3 || d < -1e-3) exit 1; n++ } END { exit n != 11 }'; }
claim 'four ranks learn what one learns, but for rounding' agree
claim 'rank 0 has saved a model' "$run" ckpt verify own_model.safetensors
claim 'with the names it gave' grep -q 'residual.weight' <("$run" ckpt ls own_model.safetensors)
"$run" run --nproc-per-node 4 ./own_model "$source_dir/LICENSE" >again || exit 1
claim 'four ranks again are the same to the bit' cmp four again

# --- a loop that forgets to synchronise is stopped at its first step, on one rank nothing is missing
program() { # NAME SED: the program, changed
    sed "$2" "$source_dir/examples/own_model.c" >"$1.c"
    ! cmp -s "$1.c" "$source_dir/examples/own_model.c" || return 1
    # shellcheck disable=SC2046,SC2086
    "${CC:-cc}" -std=c17 -O2 $sanitize "$1.c" $(pkg-config --cflags --libs lockstep) -lm -o "$1"
}
forgets() { # NAME SED
    claim "$1: it compiles" program "$1" "$2"
    claim "$1: 2 ranks are refused their first step" fails_with 64 \
        "the gradient of embed.weight is this rank's own, not the mean over 2 ranks; no weight was changed" \
        "$run" run --nproc-per-node 2 "./$1" "$source_dir/LICENSE"
    claim "$1: one rank trains" has_line 'step 1000' "./$1" "$source_dir/LICENSE"
}
forgets no_sync 's/ls_ddp_begin_forward(j->ddp, j->tape, true)/ls_ddp_begin_forward(j->ddp, j->tape, false)/'
forgets unannounced '/ls_ddp_begin_forward/d'

# --- torchrun's environment, by hand
port=$("$run" run --nproc-per-node 1 sh -c 'echo $MASTER_PORT')
by_hand() { RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port ./own_model "$source_dir/LICENSE"; }
by_hand 1 >/dev/null &
claim "it runs in torchrun's environment" has_line 'ranks 2, parameters' by_hand 0
wait $!
claim 'on every rank' test $? = 0

# --- the page about it
pasted() { # every line of its C blocks is in the program; those of chapters that have programs of their own are claimed elsewhere
    awk '/^## / { other = /own (data|units|optimizer|communication hook)$|^## An operation/ } /^```c$/ { on = !other; next } /^```/ { on = 0 } on' "$source_dir/docs/your-own-model.md" |
        grep -v '^$' >shown
    [ "$(wc -l <shown)" -ge 30 ] && ! grep -vxFf "$source_dir/examples/own_model.c" shown
}
claim 'the page shows lines of the program' pasted

# --- a model as units
# shellcheck disable=SC2046,SC2086
claim 'the program with units compiles without a warning' "${CC:-cc}" -std=c17 -O2 -Wall -Wextra -Werror $sanitize \
    "$source_dir/examples/own_units.c" $(pkg-config --cflags --libs lockstep) -lm -o own_units
for how in none selective full; do ./own_units "$source_dir/LICENSE" $how >units.$how || exit 1; done
bytes() { sed -n 's/^ranks .* activations \([0-9]*\) bytes/\1/p' units.$1; }
claim 'selective takes less memory than none' test "$(bytes selective)" -lt "$(bytes none)"
claim 'and full takes a third or less' test $((3 * $(bytes full))) -lt "$(bytes none)"
claim 'the losses are the same to the last digit' \
    test "$(losses units.none)" = "$(losses units.selective)" -a "$(losses units.none)" = "$(losses units.full)"
claim 'it learns' awk '/^step/ { last = $4 } END { exit !(last < 0.5) }' units.none
claim 'and on two ranks' has_line 'ranks 2, units 10' "$run" run --nproc-per-node 2 ./own_units "$source_dir/LICENSE" full
units_pasted() {
    awk '/^## / { units = /own units$/ } /^```c$/ { on = units; next } /^```/ { on = 0 } on' "$source_dir/docs/your-own-model.md" |
        grep -v '^$' >shown
    [ "$(wc -l <shown)" -ge 15 ] && ! grep -vxFf "$source_dir/examples/own_units.c" shown
}
claim 'the page shows lines of it' units_pasted

# --- an operation
# shellcheck disable=SC2046,SC2086
claim 'the program with an operation compiles without a warning' "${CC:-cc}" -std=c17 -O2 -Wall -Wextra -Werror $sanitize \
    "$source_dir/examples/own_op.c" $(pkg-config --cflags --libs lockstep) -lm -o own_op
claim 'it finds the filter' awk '/^step/ { last = $4; n++ } END { exit !(n == 5 && last == 0) }' <(./own_op)
op_pasted() {
    awk '/^## / { op = /^## An operation/ } /^```c$/ { on = op; next } /^```/ { on = 0 } on' "$source_dir/docs/your-own-model.md" |
        grep -v '^$' >shown
    [ "$(wc -l <shown)" -ge 10 ] && ! grep -vxFf "$source_dir/examples/own_op.c" shown
}
claim 'the page shows lines of that program' op_pasted

claim 'a batch that cannot be divided is refused by every rank' fails_with 78 '3 ranks do not divide a batch of 64' \
    "$run" run --nproc-per-node 3 ./own_model "$source_dir/LICENSE"
claim 'and no text' fails_with 64 'usage: own_model FILE' ./own_model
# --- an optimizer of its own
# shellcheck disable=SC2046,SC2086
claim 'the program with its own optimizer compiles without a warning' "${CC:-cc}" -std=c17 -O2 -Wall -Wextra -Werror $sanitize \
    "$source_dir/examples/own_optimizer.c" $(pkg-config --cflags --libs lockstep) -lm -o own_optimizer
./own_optimizer >lion.one || exit 1
"$run" run --nproc-per-node 4 ./own_optimizer >lion.four || exit 1
claim 'Lion learns' awk '/^step/ { if (!first) first = $4; last = $4 } END { exit !(first > 1.3 && last < 0.4) }' lion.one
lions_agree() { paste -d' ' <(losses lion.one) <(losses lion.four) | awk '{ d = $2 - $4; if (d > 2e-3 || d < -2e-3) exit 1; n++ } END { exit n != 4 }'; }
claim 'on four ranks as on one, but for rounding' lions_agree
lion_pasted() {
    awk '/^## / { on = 0; here = /own optimizer$/ } here && /^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$source_dir/docs/your-own-model.md" |
        grep -v '^$' >shown.lion
    [ "$(wc -l <shown.lion)" -ge 25 ] && ! grep -vxFf "$source_dir/examples/own_optimizer.c" shown.lion
}
claim 'the page shows lines of it' lion_pasted
# --- a communication hook of its own
# shellcheck disable=SC2046,SC2086
claim 'the program with its own hook compiles without a warning' "${CC:-cc}" -std=c17 -O2 -Wall -Wextra -Werror $sanitize \
    "$source_dir/examples/own_hook.c" $(pkg-config --cflags --libs lockstep) -lm -o own_hook
"$run" run --nproc-per-node 4 ./own_hook plain >hook.plain || exit 1
"$run" run --nproc-per-node 4 ./own_hook >hook.four || exit 1
claim 'with 8 bits it learns' awk '/^step/ { if (!first) first = $4; last = $4 } END { exit !(first > 1.3 && last < 0.4) }' hook.four
hooks_agree() { paste -d' ' <(losses hook.plain) <(losses hook.four) | awk '{ d = $2 - $4; if (d > 0.03 || d < -0.03) exit 1; n++ } END { exit n != 4 }'; }
claim 'nearly as with 32' hooks_agree
claim 'and not the same: the hook is used' bash -c '! cmp -s hook.plain hook.four'
hook_pasted() {
    awk '/^## / { on = 0; here = /own communication hook$/ } here && /^```c$/ { on = 1; next } /^```/ { on = 0 } on' "$source_dir/docs/your-own-model.md" |
        grep -v '^$' >shown.hook
    [ "$(wc -l <shown.hook)" -ge 20 ] && ! grep -vxFf "$source_dir/examples/own_hook.c" shown.hook
}
claim 'the page shows lines of it' hook_pasted
finish
