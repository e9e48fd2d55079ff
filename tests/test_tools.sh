#!/bin/bash
# The checkers, checked: each is given something broken and must go red.
. "$(dirname "$0")/harness.sh"
mkdir -p "$tmp/tree/tools" "$tmp/tree/tests" "$tmp/tree/docs" "$tmp/tree/include/lockstep" "$tmp/tree/src/cli" "$tmp/tree/build/tests"
cp "$source_dir"/tools/run-tests "$source_dir"/tools/check-docs "$source_dir"/tools/{check-style,check-words,words} "$tmp/tree/tools"
cp "$build/tests/guard" "$tmp/tree/build/tests"
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

printf '# two of them\ntest_good  it is good\n\ntest_script.sh  too\n' >list
claim '--list runs the suites that a file names, no other' test "$(last --list list)" = '10 passed, 1 failed'
echo test_goo >list
claim '--list wants whole names' fails_with 1 'no suite is called test_goo' tools/run-tests build --list list
: >list
claim 'an empty list is no list of all' fails_with 1 'names no suite' tools/run-tests build --list list
# Three that only pass if all of them run at the same time, though -j is 2.
for name in a b c; do
    suite test_together_$name "touch $tmp/together_$name; for i in {1..400}; do [ \$(ls $tmp/together_* | wc -l) = 3 ] && break; sleep 0.01; done
[ \$i -lt 400 ] && echo '1 passed, 0 failed'"
done
claim '-j 2: no third suite beside two' sh -c "echo '$(run_tests -j 2 --timeout 10 together | tail -1)' | grep -qE '^[012] passed, [123] failed$'"
rm -f "$tmp"/together_*
echo 'test_together_a  sleeps' >tests/waiting_suites
claim 'a suite that waits runs beside as many others as -j says' test "$(run_tests -j 2 --timeout 10 together | tail -1)" = '3 passed, 0 failed'
rm tests/waiting_suites
unlisted() { # suites in a list of the repository that are gone
    awk '!/^ *(#|$)/ { print $1 }' "$source_dir/tests/$1" | while read -r name; do
        [ -e "$source_dir/tests/$name" ] || [ -e "$source_dir/tests/$name.c" ] || echo "$name"
    done
}
claim "every suite of make test-clang's list is there" test -z "$(unlisted clang_suites)"
claim 'and every suite that waits' test -z "$(unlisted waiting_suites)"

# --- guard: nothing outlives a test. Those who stay say who they are in a file.
until_true() { # command...: tried until it succeeds, for at most 20 s
    for _ in {1..2000}; do
        "$@" && return 0
        sleep 0.01
    done
    return 1
}
gone() { # no process of the file is left; one that is dead, but not yet reaped, does not run
    local pid state
    while read -r pid; do
        state=$(sed -n 's/^State:\t\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null)
        [ -z "$state" ] || [ "$state" = Z ] || { echo "$pid is there, in state $state"; return 1; }
    done <"$1"
}
has_lines() { [ "$(cat "$2" 2>/dev/null | wc -l)" -ge "$1" ]; } # number, file
# Three that would stay: a child, one in a session of its own, and a grandchild that ignores signals and is an orphan.
cat >stay <<'SH'
echo "$LOCKSTEP_TEST_TMP" >folder
touch "$LOCKSTEP_TEST_TMP/file"
sleep 1000 & echo $! >>stayed
setsid bash -c 'echo $$ >>stayed; exec sleep 1000' &
(bash -c 'trap "" INT TERM HUP; echo $$ >>stayed; sleep 1000; sleep 1000' &)
until [ "$(wc -l <stayed)" = 3 ]; do sleep 0.01; done
SH
guard=$build/tests/guard
removed() { [ -n "$(cat folder)" ] && [ ! -e "$(cat folder)" ]; }
"$guard" bash -c '. ./stay; exit 7'
claim "guard: ends with the test's status" test $? = 7
claim 'guard: what a test leaves is ended' gone stayed
claim 'guard: its folder is removed' removed
"$guard" bash -c 'kill -SEGV $$'
claim 'guard: or with the signal' test $? = 139
rm -f stayed
"$guard" -t 1 bash -c '. ./stay; sleep 1000'
claim 'guard: a test that takes too long ends with 124' test $? = 124
claim 'guard: and takes along what it started' gone stayed
for signal in INT TERM HUP KILL; do
    rm -f stayed cleaned
    # Job control, or the shell has its background jobs ignore SIGINT.
    bash -mc "'$guard' bash -c 'trap \"echo yes >cleaned\" EXIT; . ./stay; sleep 1000' & echo \$! >pid; wait" 2>/dev/null &
    claim "guard, SIG$signal: the test runs" until_true has_lines 3 stayed
    kill -$signal "$(cat pid)"
    claim "guard, SIG$signal: nothing is left" until_true gone stayed
    claim "guard, SIG$signal: its folder is removed" until_true removed
    claim "guard, SIG$signal: the test could clean up" until_true has_lines 1 cleaned
    wait
done
rm -f stayed
cp stay build/stay && suite test_stays '. ../stay; sleep 1000'
sed -i 's|^\(.*\)>folder|\1>../folder|; s|>>stayed|>>../stayed|g; s|<stayed|<../stayed|' stay
setsid tools/run-tests build --timeout 100 stays >/dev/null 2>&1 &
runner=$!
claim 'run-tests: the suite runs' until_true has_lines 3 stayed
kill -TERM $runner
wait $runner 2>/dev/null
claim 'run-tests, SIGTERM: nothing is left' until_true gone stayed
unguarded() { grep -L -e 'harness[a-z_]*\.sh' -e '^exec bash .*/test_[a-z_]*\.sh' "$source_dir"/tests/{test,long}_*.sh; }
claim 'every test script runs under the guard, by its harness' test -z "$(unguarded)"

# --- .ci/run: its last line is true for all steps together
mkdir .ci && cp "$source_dir/.ci/run" .ci
ci() { # what check, test and test-clang print, and whether each ends with 0
    printf 'check:\n\t@echo "%s"; %s\ntest:\n\t@echo "%s"; %s\ntest-clang:\n\t@echo "%s"; %s\n' "$@" >Makefile
    MAKEFLAGS='' .ci/run >ci.out 2>&1
    echo "$? $(tail -1 ci.out)"
}
fine=('7 checks passed, 0 failed' true '100 passed, 0 failed' true '20 passed, 0 failed' true)
claim 'ci: the sum of three runs' test "$(ci "${fine[@]}")" = '0 127 passed, 0 failed'
claim 'ci: a check that fails' test "$(ci '6 checks passed, 1 failed' false "${fine[@]:2}")" = '1 126 passed, 1 failed'
claim 'ci: tests that fail before others that pass' test "$(ci "${fine[@]:0:2}" '98 passed, 2 failed' false "${fine[@]:4}")" = '1 125 passed, 2 failed'
claim "ci: clang's that fail" test "$(ci "${fine[@]:0:4}" '19 passed, 1 failed' false)" = '1 126 passed, 1 failed'
claim 'ci: a build that fails' test "$(ci "${fine[@]:0:4}" 'no such compiler' false)" = '1 107 passed, 1 failed'
claim 'ci: a step that says 0 failed and ends with another status' test "$(ci "${fine[@]:0:5}" false)" = '1 127 passed, 1 failed'
claim 'ci: a step that counts nothing' test "$(ci "${fine[@]:0:4}" 'all well' true)" = '1 107 passed, 1 failed'

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
claim 'a status name without a page is found' red '`oops`' docs
echo '| `oops` | 71 |' >docs/failures.md
claim 'a wrong exit code is found' red 'exit code 70' docs
echo '| `oops` | 70 |' >docs/failures.md
claim 'a status name without a test is found' red 'provokes `oops`' docs
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
rm b.c
printf '#!/bin/sh\n' >program
claim 'check-style finds a program that is not executable' red 'program' tools/check-style
chmod +x program
claim 'and passes one that is' tools/check-style
rm program

# --- check-words: one example for each rule of tools/words, in its order
mkdir -p docs src include/lockstep
refused=(
    'cores are crowded' 'ranks that are started by hand' 'they run turn by turn' 'in all: 8' '4 sequences a rank' 'forward is made again'
    'it gives back memory' 'a rank lets go' 'a stranger is dropped' 'somebody moves the bytes' 'a poke point' 'it has patience' 'a code word'
    'the sender is blamed' 'ten beats' 'the agent of a node' 'the door' 'a rank comes in' 'narrowed gradients' 'folded vectors'
    'by mail' 'a packet' '1 tokens of 99 kinds' 'a demand' 'the columns behind it' 'it is served' 'a sentence' 'near ranks' "a rank's own share"
    'two hosts' 'no room' 'the checkpoint is kept' 'a question' 'buckets are laid out'
)
rules() { sed -n 's/^[^#].* => //p' tools/words; }
says_for() { echo "$1" >docs/a.md; tools/check-words docs/a.md | sed -n '1s/.*the field says: //p'; }
while read -r better <&3; do
    claim "check-words refuses '${refused[0]:-no example}'" test "$(says_for "${refused[0]:-x}")" = "$better"
    refused=("${refused[@]:1}")
done 3< <(rules)
claim 'no example is left over' test ${#refused[@]} = 0
for fine in 'in all ranks' 'a rank is one process' '`poke` in code' 'hidden behind backward' 'the host name' '[text](by-hand.md)' 'an LL packet' 'it comes in order'; do
    claim "check-words takes '$fine'" test -z "$(says_for "$fine")"
done
printf 'a\n```\nin all: 8\n```\n<!-- begin: x -->\nin all: 8\n<!-- end: x -->\nb\nby hand\n' >docs/a.md
claim 'blocks of output and measured tables are as they are' test "$(tools/check-words docs/a.md | cut -d: -f1,2)" = docs/a.md:9
printf '/* a poke */\n#include "door shut.h"\nchar *a = "fold", *b = "the door is shut";\n' >src/a.c
claim 'of code only what it prints, and no names' test "$(tools/check-words | cut -d: -f1,2)" = $'docs/a.md:9\nsrc/a.c:3'
claim 'the word is named' test "$(tools/check-words src/a.c)" = "src/a.c:3: 'door': the field says: handshake, listener"
printf '/* a poke */\n' >include/lockstep/a.h
claim 'of public headers their comments, too' red 'include/lockstep/a.h:1' tools/check-words
claim 'check-style passes it on' red 'include/lockstep/a.h:1' tools/check-style
claim 'nothing found ends with 0' tools/check-words a.c

# --- run-busy: a benchmark that fails is not a time
mkdir -p fake/bench
cat >fake/bench/bench_gpt <<'FAKE'
#!/bin/bash
[ "${OMP_WAIT_POLICY:-}" != "$BAD" ] || { echo 'the reason' >&2; exit 1; }
for step in 1 2 3; do echo "$step,0,$((10 * step))"; done
FAKE
chmod +x fake/bench/bench_gpt
run_busy() { BAD=$1 timeout -k 5 60 "$source_dir/bench/run-busy" "$PWD/fake" 1; }
claim 'run-busy: the median of the steps after the second' has_line 'gpt2-tiny  busy         5      30.00 +-0.00 ' run_busy none
claim 'a failed run ends it' fails_with 1 'bench_gpt --threads ' run_busy active
claim 'and its output is shown' fails_with 1 '| the reason' run_busy ''

# --- draw-trace: of a collective only what lies beside no computing is exposed
slice() { printf '{"ph":"X","pid":%d,"tid":%d,"name":"%s","cat":"%s","ts":%d,"dur":%d,"args":{"step":1,"bytes":8}}' "$@"; }
printf '{"traceEvents":[%s,%s,%s,%s,%s]}' "$(slice 0 1 step step 0 1000)" "$(slice 0 1 linear forward 0 400)" "$(slice 0 1 linear backward 400 200)" \
    "$(slice 0 2 'bucket 0' comm 500 300)" "$(slice 0 1 'optimizer step' optim 900 100)" >trace.json
drawn() { "$source_dir/tools/draw-trace" trace.json picture.svg "$@"; }
claim 'draw-trace: 200 of 1000 us are exposed' has_line 'rank 0: 20.0 % of 1.00 ms exposed' drawn
claim 'one red box' test "$(grep -c '<rect.*d1342f.*<title>' picture.svg)" = 1
claim 'the picture is XML' python3 -c 'import sys, xml.dom.minidom as x; x.parse("picture.svg")'
claim 'a part of it' has_line 'rank 0: 40.0 % of 0.50 ms exposed' drawn --from 0.5
printf '{"traceEvents":[%s,%s,%s,%s,%s,%s]}' "$(slice 0 1 step step 0 1000)" "$(slice 0 1 'cp_attention 8x8' forward 0 1000)" \
    "$(slice 0 2 'keys and values' comm 100 500)" "$(slice 0 3 'keys and values' comm 100 500)" "$(slice 0 4 'keys and values' wait 400 200)" \
    "$(slice 1 1 step step 0 1000)" >trace.json
claim 'a wait inside an operation is exposed, and counts once for two messages' has_line 'rank 0: 20.0 % of 1.00 ms exposed' drawn
printf '{"traceEvents":[%s,%s,%s,%s]}' "$(slice 0 1 step step 0 1000)" "$(slice 0 1 tp_leave forward 0 500)" "$(slice 0 2 leave comm 100 300)" \
    "$(slice 0 1 linear forward 500 500)" >trace.json
claim 'an operation that is a collective is no compute' has_line 'rank 0: 33.3 % of 0.90 ms exposed' drawn
claim 'the first operation alone' has_line 'rank 0: 33.3 % of 0.90 ms exposed' drawn --first 1
of_micro_batch() { slice "${@:2}" | sed "s/\"step\":1/\"step\":1,\"micro_batch\":$1/"; }
printf '{"traceEvents":[%s,%s,%s,%s,%s]}' "$(slice 0 1 linear forward 0 100)" "$(slice 0 1 relu forward 100 100)" \
    "$(of_micro_batch 1 0 1 linear forward 200 100)" "$(of_micro_batch 1 0 1 linear backward 600 300)" \
    "$(slice 0 1 linear backward 900 100)" >trace.json
claim 'of a pipeline: what is idle' has_line 'rank 0: 30.0 % of 1.00 ms idle' drawn --pipeline
claim 'a box per pass, with its micro-batch' test "$(grep -oE '>[a-z]+ of micro-batch [0-9]+: [0-9]+ us' picture.svg | tr -d '>' | tr '\n' ,)" = \
    'forward of micro-batch 0: 200 us,forward of micro-batch 1: 100 us,backward of micro-batch 1: 300 us,backward of micro-batch 0: 100 us,'
later() { slice "$@" | sed 's/"step":1/"step":2/'; }
printf '{"traceEvents":[%s,%s,%s,%s]}' "$(slice 0 1 step step 0 1000)" "$(slice 0 1 linear forward 0 900)" "$(later 0 1 step step 1000 300)" \
    "$(later 0 1 linear forward 1000 200)" >trace.json
claim 'the shortest step' has_line 'rank 0: 0.0 % of 0.20 ms exposed' drawn --quietest
claim 'an empty part is refused' red 'nothing lies between' drawn --from 2 --to 3
finish
