#!/bin/bash
# long_deb.sh -- Debian packages: `make deb` builds them, lintian finds nothing, and in a minimal Debian they are installed,
# used from a user's folder, linked with in C and C++, and removed without a trace.
#
#   tests/long_deb.sh BUILD
. "$(dirname "$0")/harness.sh"
for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null || { echo "skipped: no $tool (scripts/setup --deb installs it)"; exit 0; }
done
. "$(dirname "$0")/harness_fresh.sh"

built() {
    "$source_dir/scripts/deb" >"$tmp/out" 2>&1 && grep -q 'lintian has neither errors nor warnings' "$tmp/out" || { shows; return 1; }
}
part 'make deb'
claim 'the packages are built, and lintian finds nothing' built
[ $failed = 0 ] || finish
mkdir "$root/debs"
cp "$source_dir"/build-deb/*.deb "$root/debs"
quiet='DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends'
add_user anna || exit 1
claim 'apt-get update works' does root "$quiet update"

# --- the program alone
part 'the program'
find "$root" -xdev -name '*lockstep*' -not -path "$root/debs/*" >"$tmp/before"
claim 'lockstep is installed' does root "$quiet install /debs/lockstep_*.deb"
[ $failed = 0 ] || finish
claim 'it is the version of the sources' test "$(sed -n 's/^Version: //p' <(chroot "$root" dpkg -s lockstep))" = \
    "$("$build/lockstep" --version | sed 's/^lockstep \([0-9.]*\).*/\1/')"
run=(train exercise-mlp --nproc-per-node 2 --train.steps 40)
trains() {
    does anna "lockstep ${run[*]}" || return 1
    grep '^final ' "$tmp/out" >"$tmp/installed"
    grep -q '^final step=40 ' "$tmp/installed" || { shows; return 1; }
}
claim 'a user trains a recipe in her home folder' trains
(cd "$tmp" && "$build/lockstep" "${run[@]}") >"$tmp/built" 2>&1
does anna 'lockstep --version' && packaged=$(grep -o 'oneDNN [0-9.]*' "$tmp/out")
if [[ $("$build/lockstep" --version) == *"$packaged"* ]]; then
    claim 'and gets the model that the program in build/ gives' cmp "$tmp/installed" <(grep '^final ' "$tmp/built")
fi
claim 'which lockstep ckpt verifies' does anna 'lockstep ckpt verify runs'
claim 'lockstep run starts a program' does anna "lockstep run --nproc-per-node 2 -- sh -c 'test \$WORLD_SIZE = 2'"
claim 'lockstep help has pages' does anna 'lockstep help failures | grep -q rank-hung'
claim 'doctor looks at the machine' does anna 'lockstep doctor'
claim 'a manual page per command' test "$(ls "$root/usr/share/man/man1" | grep -c '^lockstep.*\.1\.gz$')" = "$(ls "$build"/man/*.1 | wc -l)"
claim 'bash completes' does anna 'source /usr/share/bash-completion/completions/lockstep && complete -p lockstep'
claim 'it leaves no process' alone

# --- the library
part 'the library'
claim 'the libraries are installed' does root "$quiet install /debs/*.deb"
claim 'and what programs are built with' does root "$quiet install g++ cmake make pkg-config binutils"
cp -r "$source_dir/tests/install" "$root/home/anna/consumer"
cp "$root/home/anna/consumer/consumer.c" "$root/home/anna/consumer/consumer.cc"
nm -D --defined-only "$root"/usr/lib/*/liblockstep.so | awk '{ print "NAME(" $NF ")" }' | grep -v '(_' >"$root/home/anna/consumer/all.inc"
chroot "$root" chown -R anna:anna /home/anna/consumer
sums='grep -q "sums 3 3$"'
claim 'C by pkg-config' does anna "cd consumer && cc -std=c17 consumer.c \$(pkg-config --cflags --libs lockstep) -o c && ./c | $sums"
claim 'C++ by CMake, without the suggested packages' does anna "cd consumer && cmake -S . -B shared -DLANGUAGES=CXX && cmake --build shared && shared/cc_lockstep | $sums"
claim 'the archive is then not offered' test ! -e "$root/home/anna/consumer/shared/cc_static"
suggested=$(sed -n 's/^Suggests: \(.*\)/\1/p' <(chroot "$root" dpkg -s liblockstep-dev) | tr -d ,)
claim 'the suggested packages are installed' does root "$quiet install $suggested"
claim 'C and C++ with the archive' does anna "cd consumer && cmake -S . -B static '-DLANGUAGES=C;CXX' -DCOMPONENTS=static && cmake --build static && static/c_static | $sums && static/cc_static | $sums"

# --- removed
part 'removal'
claim 'all of it is removed' does root "$quiet purge lockstep liblockstep0 liblockstep-dev"
find "$root" -xdev -name '*lockstep*' -not -path "$root/debs/*" -not -path "$root/home/*" >"$tmp/after"
claim 'and nothing stays' diff <(sort "$tmp/before") <(sort "$tmp/after")
part 'done'
finish
