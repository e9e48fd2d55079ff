#!/bin/bash
# The checkers, checked: each is given something broken and must go red.
. "$(dirname "$0")/harness.sh"
mkdir -p "$tmp/tree/tools" "$tmp/tree/tests" "$tmp/tree/docs" "$tmp/tree/include/lockstep" "$tmp/tree/src/cli" "$tmp/tree/build/tests"
cp "$source_dir"/tools/run-tests "$source_dir"/tools/check-docs "$source_dir"/tools/check-style "$tmp/tree/tools"
cd "$tmp/tree" || exit 1

# --- run-tests: suites that only print what cmocka would
suite() { # name, body
    printf '#!/bin/bash\n%s\n' "$2" >"build/tests/$1"
    chmod +x "build/tests/$1"
    touch "tests/$1.c"
}
run_tests() { tools/run-tests build --timeout 2 "$@"; }
last() { run_tests "$@" | tail -1; }

suite test_good 'echo "[==========] Running 3 test(s)."; echo "[  PASSED  ] 3 test(s)."'
claim 'counts single tests' test "$(last good)" = '3 passed, 0 failed'
claim 'ends with status 0' run_tests good
suite test_bad 'echo "[==========] Running 3 test(s)."; echo why; echo "[  PASSED  ] 1 test(s)."
echo "[  FAILED  ] 2 test(s), listed below:"; echo "[  FAILED  ] a"; echo "[  FAILED  ] b"; exit 2'
claim 'counts failures' test "$(last bad)" = '1 passed, 2 failed'
claim 'ends with another status' fails_with 1 '' tools/run-tests build bad
claim 'shows why' has_line '| why' sh -c 'tools/run-tests build bad; true'
claim 'adds suites up' test "$(last good bad)" = '4 passed, 2 failed'
suite test_crash 'echo "[==========] Running 5 test(s)."; echo "[       OK ] a"; echo "[       OK ] b"; kill -SEGV $$'
claim 'a crash fails what had not passed' test "$(last crash)" = '2 passed, 3 failed'
claim 'and names the signal' has_line 'died by signal 11' sh -c 'tools/run-tests build crash; true'
suite test_late 'echo "[==========] Running 2 test(s)."; echo "[  PASSED  ] 2 test(s)."; exit 1'
claim 'a bad end after good tests fails' test "$(last late)" = '2 passed, 1 failed'
suite test_nothing 'exit 0'
claim 'no test at all is a failure' test "$(last nothing)" = '0 passed, 1 failed'
suite test_slow 'echo "[==========] Running 2 test(s)."; sleep 30'
claim 'a suite that hangs is stopped' has_line 'stopped after 2 s' sh -c 'tools/run-tests build --timeout 2 slow; true'
suite test_skips 'echo "[==========] Running 2 test(s)."; echo "[  PASSED  ] 1 test(s)."; echo "[  SKIPPED ] 1 test(s), listed below:"'
claim 'skipped tests are said, not counted as passed' has_line '1 passed, 0 failed, 1 skipped' tools/run-tests build skips
echo 'echo "7 passed, 1 failed"; exit 1' >tests/test_script.sh
claim 'a script counts for itself' test "$(last script)" = '7 passed, 1 failed'
echo 'echo "7 passed, 0 failed"; exit 1' >tests/test_liar.sh
claim 'and its status is believed' test "$(last liar)" = '7 passed, 1 failed'
suite test_gone 'echo "[  PASSED  ] 9 test(s)."'
rm tests/test_gone.c
claim 'an executable without source is left over' test "$(last gone)" = '0 passed, 0 failed'
claim 'and nothing run is no success' fails_with 1 '' tools/run-tests build gone

# --- check-docs
docs() { tools/check-docs "$tmp/tree"; }
red() { # text, command...: fails, and its output has the text
    local text=$1 out
    shift
    if out=$("$@" 2>&1); then echo 'it passed'; return 1; fi
    [[ $out == *"$text"* ]] || { echo "'$text' is not in: $out"; return 1; }
}
header() { printf '%s\n' '/* x.h -- x. */' '#ifndef LS_X_H' '#define LS_X_H' '' "$@" '' '#endif' >include/lockstep/x.h; }
header '/* Does x. */' 'int ls_x(int a);'
printf '[a](docs/a.md) and `src/cli`\n\n```console\n$ make test\n```\n' >README.md
echo 'test: x' >Makefile
touch docs/a.md
claim 'check-docs: sound documentation passes' docs
mv docs/a.md docs/b.md
claim 'a dead link is found' red 'docs/a.md' docs
mv docs/b.md docs/a.md
printf '`src/gone.c`\n' >docs/a.md
claim 'a path that is gone is found' red 'src/gone.c' docs
printf '```console\n$ make nonsense\n```\n' >README.md && : >docs/a.md
claim 'a target that is not there is found' red 'make nonsense' docs
printf '```console\n$ build/lockstep nonsense\n```\n' >README.md
claim 'a subcommand that is not there is found' red 'nonsense' docs
touch src/cli/a.c && printf '| 1 | `src/cli/a.c` | `walk` | x |\n' >README.md
claim 'a function that is gone is found' red 'no walk' docs
: >README.md
header '/* Does x. */' 'int ls_x(int a);' '' 'int ls_y(int a);'
claim 'a function without a comment is found' red 'ls_y' docs
header 'typedef struct ls_z {' '    int a;' '} ls_z;'
claim 'a struct without a comment is found' red 'ls_z' docs
header '/* x */' 'int ls_x(int a);'
printf '    X(OOPS, -1, "oops", 70, "x") \\\n' >include/lockstep/status.h
echo 'nothing' >docs/failures.md
claim 'a code word without a page is found' red '`oops`' docs
echo '| `oops` | 71 |' >docs/failures.md
claim 'a wrong exit code is found' red 'exit code 70' docs
echo '| `oops` | 70 |' >docs/failures.md
claim 'a code word without a test is found' red 'provokes `oops`' docs
echo 'LS_OOPS' >tests/test_x.c
claim 'and with all of it, all is well' docs

# --- check-style
rm -rf build tests docs README.md include src
echo 'int a;' >a.c
claim 'check-style: a plain file passes' tools/check-style
for broken in 'int a;  ' $'\tint a;' $'int \xc3\xa4;' "int a$(printf '%0130d' 0);"; do
    printf '%s\n' "$broken" >b.c
    claim "check-style finds: ${broken:0:20}" red 'b.c' tools/check-style
done
printf 'int a;' >b.c
claim 'check-style finds a last line without its end' red 'b.c' tools/check-style
finish
