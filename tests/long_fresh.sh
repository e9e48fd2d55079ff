#!/bin/bash
# long_fresh.sh -- the two commands of README.md on a bare Debian: a minimal Debian is made by debootstrap, the last
# commit is cloned into it, and `make train` and `make test` run once as root, and once as a user without sudo.
#
#   tests/long_fresh.sh BUILD [root] [anna]            or `make test-fresh`
#
# tests/harness_fresh.sh makes the minimal Debian, and says what that takes.
. "$(dirname "$0")/harness.sh"
. "$(dirname "$0")/harness_fresh.sh"
users=("${@:2}")
[ ${#users[@]} -gt 0 ] || users=(root anna)

here() { as "$1" "cd lockstep && $2"; } # in the user's clone
clone() { # user
    local home
    home=$(home_of "$1")
    git clone -q "file://$source_dir" "$home/lockstep" && cp "$tmp/npmrc" "$home/.npmrc" &&
        chroot "$root" chown -R "$1:$1" "/${home#"$root/"}"
}
in_clone() { here "$@" || { shows; return 1; }; } # a command that has to succeed
trains() {
    in_clone "$1" 'make train' || return 1
    grep -q '^checkpoint: runs/.*/model.safetensors$' "$tmp/out" && grep -q '^sample at step 3000:$' "$tmp/out" &&
        tail -1 "$tmp/out" | grep -qE '^final step=3000 loss=0x1\.[0-9a-f]+p[+-][0-9]+ digest=[0-9a-f]{32}$' || { shows; return 1; }
    tail -1 "$tmp/out" >>"$tmp/finals"
}
tests() {
    here "$1" 'make test'
    local status=$?
    grep -E '^FAILED ' -A60 "$tmp/out"
    [ $status = 0 ] && tail -1 "$tmp/out" | grep -qE '^[0-9]{3,} passed, 0 failed$' || { shows 3; return 1; }
    tail -1 "$tmp/out"
}

# --- as a user who may not install anything: what is missing is named -----------------------------------------------------
add_user anna || exit 1
claim 'a clone for root' clone root
claim 'a clone for anna, who has no sudo' clone anna
[ $failed = 0 ] || finish
refused() {
    ! here anna 'scripts/setup --text' || { echo 'it succeeded'; return 1; }
    grep -qF 'setup: neither root nor able to use sudo' "$tmp/out" &&
        grep -qE '^  apt-get update && apt-get install --no-install-recommends .*\bmake\b.*\bgcc\b.*\bnpm\b' "$tmp/out" || { shows; return 1; }
}
claim 'setup tells her what to have installed, and fails' refused

# --- as root ----------------------------------------------------------------------------------------------------------
first=$(sed -n 's/^\$ \(apt-get update && apt-get install .*\bmake\b.*\)$/\1/p' "$source_dir/README.md" | head -1)
claim 'README.md says how to get make' test -n "$first"
part "as root: $first"
claim 'which works' in_clone root "DEBIAN_FRONTEND=noninteractive $first"
[ $failed = 0 ] || finish
[[ " ${users[*]} " == *' root '* ]] || claim 'root installs the rest' in_clone root 'scripts/setup --text'
for user in "${users[@]}"; do
    part "as $user: make train"
    claim "$user: make train" trains $user
    claim "$user: leaves no process" alone
    part "as $user: make test"
    claim "$user: make test" tests $user
    claim "$user: leaves no process either" alone
    shows 1
done
claim 'they trained the same model' test "$(sort -u "$tmp/finals" | wc -l) $(wc -l <"$tmp/finals")" = "1 ${#users[@]}"
part 'done'
finish
