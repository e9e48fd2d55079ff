#!/bin/bash
# tools/mutate, on a project of one function: what is caught, what survives, what does not apply or build.
. "$(dirname "$0")/harness.sh"
tree=$tmp/tree
mkdir -p "$tree"/{tools,src,tests,include}
cp "$source_dir/tools/mutate" "$tree/tools"
cd "$tree" || exit 1
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.22)
project(small LANGUAGES C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_executable(test_small tests/test_small.c src/small.c)
CMAKE
cat >CMakePresets.json <<'JSON'
{ "version": 4, "configurePresets": [ { "name": "release", "generator": "Ninja", "binaryDir": "build" } ] }
JSON
printf 'int twice(int a)\n{\n    int unused = 7;\n    (void)unused;\n    return 2 * a;\n}\n' >src/small.c
cat >tests/test_small.c <<'C'
int twice(int a);
int main(void)
{
    while (twice(1) == 9) {}
    return twice(4) != 8;
}
C
printf '#!/bin/bash\nexit 0\n' >tests/test_blind.sh
git init -q . && git add -A

list() { cat >tools/mutants.txt; }
mutate() { timeout -k 5 120 tools/mutate --jobs 1 --timeout 10 "$@" 2>&1; }
says() { # status, text, options...
    local want=$1 text=$2 out status
    shift 2
    out=$(mutate "$@")
    status=$?
    [ $status = "$want" ] || { echo "exit status $status, expected $want: $out"; return 1; }
    [[ $out == *"$text"* ]] || { echo "'$text' is not in: $out"; return 1; }
}

caught='@ product src/small.c test_small
-     return 2 * a;
+     return 3 * a;'
survivor='@ constant src/small.c test_small
-     int unused = 7;
+     int unused = 8;'
list <<<"$caught"
claim 'a mutant that a suite notices is caught' says 0 'caught     1/1 product'
claim 'the source in the working tree is as it was' grep -q 'return 2 \* a' src/small.c
claim 'and so is the copy: the next run finds it healthy' says 0 '1 caught, 0 survived'
list <<<"$survivor"
claim 'one that no suite notices has survived' says 1 'survived without an explanation: constant'
list <<<"$survivor
= the value is not used"
claim 'an explanation does not make it caught' says 1 '0 caught, 1 survived'
list < <(for i in {1..19}; do sed "s/@ product/@ product$i/" <<<"$caught"; done; printf '%s\n= the value is not used\n' "$survivor")
claim '19 of 20 caught, the other explained: enough' says 0 '95.0 % caught'
list < <(for i in {1..18}; do sed "s/@ product/@ product$i/" <<<"$caught"; done; printf '%s\n= the value is not used\n' "$survivor")
claim '18 of 19 are not enough' says 1 '94.7 % caught'
printf 'processor : 0\nflags\t: fpu swift sse\n' >cpuinfo
list <<<"$caught
? swift

${survivor}
? swift nimble"
claim 'a mutant of code that this processor does not run is left out' says 0 'left out, since this processor lacks nimble: constant' \
    --cpuinfo cpuinfo
claim 'and the others are not' says 0 '1 caught, 0 survived' --cpuinfo cpuinfo
printf 'Features : fpu nimble swift\n' >cpuinfo
claim 'with what it needs it is broken, too' says 1 '1 caught, 1 survived' --cpuinfo cpuinfo
list <<<"$caught
? !sse

${survivor}
? swift !nimble"
claim 'one of code for processors that lack a flag is left out where there is one' says 0 \
    'left out, since this processor has nimble: constant' --cpuinfo cpuinfo
claim 'and broken where there is none' says 1 '1 caught, 1 survived' --cpuinfo <(printf 'flags : swift\n')
list <<<"${caught/3 \* a/9}"
claim 'a suite that does not end is red, too' says 0 'which did not end'
claim 'nothing that it started is left' bash -c '! grep -lsz "$1" /proc/[0-9]*/cmdline | grep .' _ "$tree/build-mutat[e]"
list <<<"${caught/3 \* a/3 * b}"
claim 'a mutant that does not build is an error' says 1 'does not build'
list <<<"${caught/2 \* a/5 * a}"
claim 'text that is not there does not apply' says 1 'its old text is 0 times in src/small.c' --check
list <<<"${caught/ test_small/ test_absent}"
claim 'a suite that is not there is named' says 1 'tests/ has no suite test_absent' --check
commit() { git add -A && git -c user.name=a -c user.email=a@b commit -qm "$1" --allow-empty; }
since() { tools/mutate --list --since HEAD | awk '{ printf "%s ", $1 }'; }
other='@ other src/other.c test_other
-     int a;
+     int b;'
echo '    int a;' >src/other.c
touch tests/test_other.c
list <<<"$caught
$other"
commit one
claim '--since a commit: nothing has changed' test -z "$(since)"
list <<<"${caught/3 \* a/4 * a}
$other"
claim 'a mutant has' test "$(since)" = 'product '
commit two
echo >>src/other.c
claim 'the file of one has' test "$(since)" = 'other '
commit three
echo >>tests/test_small.c
claim 'a suite has' test "$(since)" = 'product '
claim '--since what is no commit is refused' says 1 'nowhere' --since nowhere
list <<<"$caught
$caught"
claim 'a name that is there twice is refused' says 1 'product is there twice' --check
list <<<"${caught/3 \* a/2 * a}"
claim 'a mutant that changes nothing does not apply' says 1 'changes nothing' --check
list <<<"${caught/test_small/test_blind.sh}"
claim 'a script that looks at nothing catches nothing' says 1 'SURVIVED'
printf '#!/bin/bash\nexit 1\n' >tests/test_blind.sh
claim 'a suite that is red anyway catches nothing' says 1 'fails on the code as it is'
finish
