# harness_fresh.sh -- for long tests in a minimal Debian; after harness.sh, with the script's own arguments.
#
#   . "$(dirname "$0")/harness_fresh.sh"
#   claim 'apt-get works' inside root 'apt-get update'
#
# Debootstrap makes the minimal Debian in $root, which lies in memory; everything runs in mount and process namespaces of
# its own: nothing is left behind, however the script ends. .cache/fresh keeps the base system and the packages, for the
# next time. Needs root (debootstrap, chroot), Debian's packages and 4 GB of memory; without, the script ends as skipped.
[ "$(id -u)" = 0 ] || { echo 'skipped: a minimal Debian is made by root only'; exit 0; }
command -v debootstrap >/dev/null || { echo 'skipped: no debootstrap (scripts/setup --fresh installs it)'; exit 0; }
apart=(unshare --mount --propagation private --pid --fork --kill-child)
if [ -z "${LOCKSTEP_FRESH:-}" ]; then
    "${apart[@]}" true 2>/dev/null || { echo 'skipped: namespaces are not permitted here (unshare --mount --pid)'; exit 0; }
    LOCKSTEP_TEST_TMP=$tmp LOCKSTEP_FRESH=1 exec "${apart[@]}" bash "$0" "$build" "${@:2}"
fi
unset LOCKSTEP_FRESH

suite=bookworm cache=$source_dir/.cache/fresh
tmp=$cache/memory root=$cache/memory/root
mkdir -p "$cache/debs/partial" "$tmp" && mount -t tmpfs -o size=8g,mode=755 tmpfs "$tmp" && mkdir -m 755 "$root" || exit 1
at=$SECONDS
part() { printf '%4d s: %s\n' $((SECONDS - at)) "$*"; }

# Packages come from where this machine has them.
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -nE "s/^URIs: *([^ ]*debian\/?)$/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+) +$suite .*/\2/p" | head -1)
mirror=${mirror:-http://deb.debian.org/debian}
make_base() {
    rm -rf "$tmp/base"
    debootstrap --variant=minbase --cache-dir="$cache/debs" $suite "$tmp/base" "$mirror" >"$tmp/debootstrap.log" 2>&1 ||
        { tail -20 "$tmp/debootstrap.log"; return 1; }
    tar -C "$tmp/base" -czf "$cache/.base.tgz" . && mv "$cache/.base.tgz" "$cache/base.tgz" && rm -rf "$tmp/base"
}
find "$cache/base.tgz" -mtime +30 -delete 2>/dev/null
if [ ! -e "$cache/base.tgz" ]; then
    part "debootstrap --variant=minbase $suite, from $mirror"
    claim 'debootstrap makes a minimal Debian' make_base
    [ $failed = 0 ] || finish
fi
tar -C "$root" -xzf "$cache/base.tgz" || exit 1
for what in 'proc proc' 'sysfs sys' 'tmpfs dev/shm' 'devpts dev/pts'; do
    mount -t "${what% *}" "${what% *}" "$root/${what#* }" || exit 1
done
mount --bind "$cache/debs" "$root/var/cache/apt/archives" || exit 1
chmod 1777 "$root/dev/shm"

# The way out is this machine's: names, package sources, proxies, registries, certificates. No secret of it stays.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
printf 'deb %s %s main\n' "$mirror" $suite >"$root/etc/apt/sources.list"
cat /etc/apt/apt.conf.d/* /etc/apt/apt.conf 2>/dev/null | grep '^Acquire::' >"$root/etc/apt/apt.conf.d/90outside"
mkdir -p "$root/usr/local/share/ca-certificates"
cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null
cat ~/.npmrc /etc/npmrc 2>/dev/null | grep -E '^(//|@[^=]*:registry|registry|(https?-)?proxy|noproxy|strict-ssl)' >"$tmp/npmrc"
outside=()
while IFS= read -r name; do outside+=("$name=${!name}"); done < \
    <(compgen -e | grep -iE '^((https?|no|all|ftp)_proxy|npm_config_(registry|proxy|https_proxy|noproxy))$')

add_user() { chroot "$root" useradd --uid 1000 --user-group --create-home --shell /bin/bash "$1"; }
home_of() { [ "$1" = root ] && echo "$root/root" || echo "$root/home/$1"; }
# Runs a command in the home folder of a user of the minimal Debian, with that user's environment and no other.
as() { # user, command; output in $tmp/out
    local id=0 home=/root path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    [ "$1" = root ] || id=1000 home=/home/$1
    chroot --userspec=$id:$id --groups=$id "$root" /usr/bin/env -i "${outside[@]}" HOME=$home USER="$1" PATH=$path \
        JOBS="${JOBS:-2}" bash -c "cd && $2" </dev/null >"$tmp/out" 2>&1
}
shows() { tail -"${1:-60}" "$tmp/out"; }
does() { as "$@" || { shows; return 1; }; } # a command that has to succeed
alone() { # no process of the minimal Debian is left
    local p left=0
    for p in "$root"/proc/[0-9]*; do # of this namespace
        [ "$(readlink "$p/root")" = "$root" ] || continue
        left=1
        tr '\0' ' ' <"$p/cmdline"
    done
    return $left
}
