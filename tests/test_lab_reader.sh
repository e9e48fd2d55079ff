#!/bin/bash
# test_lab_reader.sh -- what a reader of the labs has done: results as text and JSON, lines imported from a page, the page of a lab with the
# reader's numbers, a task that is watched; and progress on a disk that is full, read-only, or used by two commands at once.
#
#   tests/test_lab_reader.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
mkdir work tasks && cd tasks || exit 1
export TMPDIR=$tmp/work OMP_NUM_THREADS=1
unset CC COLUMNS
lab() { # arguments: leaves out, err and code
    timeout -k 5 100 "$lockstep" lab "$@" >../out 2>../err </dev/null
    code=$?
}
ends() { [ $code = "$1" ] || { echo "exit status $code, expected $1"; cat ../out ../err; return 1; }; }
said() { tr -s ' \n' ' ' <../out | grep -qF -- "$1" || { cat ../out ../err; return 1; }; }
wrong() { grep -qF -- "$1" ../err || { cat ../out ../err; return 1; }; }
narrow() { test -z "$(awk 'length > 40 && !/^    [^>]/ && NF > 1' ../out)" || { awk 'length > 40' ../out; return 1; }; }

# --- without tasks
for words in results 'progress import x'; do
    lab $words
    claim "$words: no tasks: 64" ends 64
    claim "$words: says how to get them" wrong '`lockstep lab start` copies them'
done
lab 1 page
claim 'the page needs none' ends 0
claim 'and says how to see numbers' said 'Numbers of your machine stand here after `lockstep lab start` and `lockstep lab 01`.'

# --- results
"$lockstep" lab start >../out
progress=lockstep-labs/progress
lab results
claim 'nothing done' said '0 of 5 labs are complete.'
lab 1 --claim 5,12c
lab 1 hint 2
claim 'claims leave their numbers' grep -qE '^01\.5 holds 20[0-9-]{8} \| ([0-9,]+) = \1$' $progress
claim 'but not all are seen' test -z "$(grep claims $progress)"
printf '%s\n' '01.ex1 green 2027-01-03 tries=3 hints=1 solution' '01.ex3 green 2027-01-03 tries=1' >>$progress
lab results --json
read -r claims quiz exercises < <(python3 -c 'import json
for x in json.load(open("../out"))["labs"]:
    if x["lab"] == "01": print(x["claims"]["n"], x["quiz"]["n"], len(x["exercises"]))')
few=$(((quiz * 8 + 9) / 10 - 1)) # right answers that are not 80 % yet, by one
lab results
claim 'claims' said "01 Gradient buckets: when does a gradient leave its rank, and what travels? claims 2 of $claims hold or are shown, 0 red"
claim 'an exercise' said 'exercise 1 green, 3 tries, 1 hint, solution shown, 2027-01-03'
claim 'one that was begun' said 'exercise 2 begun, 1 hint, 20'
COLUMNS=40 lab results
claim 'results in 40 columns' narrow
for ((q = 1; q <= few; q++)); do echo "01.q$q right 2027-01-04 tries=1"; done >more
lab progress import more
claim 'lines of a page are imported' said "lockstep-labs/progress: now has what $few lines of more say"
for ((x = 4; x <= exercises; x++)); do echo "01.ex$x green 2027-01-03 tries=1"; done >>$progress
sed -i 's/^01.ex2 begun/01.ex2 green/' $progress
echo '01.claims seen 2027-01-04' >>$progress
lab results --json
claim 'one too few right answers are not 80 %' python3 - "$quiz" "$few" <<'PY'
import json, sys
n, few = map(int, sys.argv[1:])
j = json.load(open("../out"))
one = [x for x in j["labs"] if x["lab"] == "01"][0]
assert j["lockstep_lab_results"] == 1 and j["complete"] == 0 and len(j["labs"]) == 5, j
assert one["quiz"] == {"n": n, "right": few, "missed": 0, "percent": 100 * few // n} and not one["complete"], one
assert one["claims"]["hold"] == 2 and one["claims"]["all_seen"] == "2027-01-04", one
assert one["exercises"][0] == {"id": "01.ex1", "state": "green", "date": "2027-01-03", "tries": 3, "hints": 1, "solution_shown": True}, one
assert j["labs"][0]["exercises"][0]["state"] is None, j
PY
echo "01.q$((few + 1)) right 2027-01-04" | tee more >/dev/null
lab progress import more
lab results
claim 'one more, and they are' said '1 of 5 labs are complete.'
sed -i 's/^01.ex3 green/01.ex3 red/' $progress
lab results
claim 'an exercise that is red is not' said '0 of 5 labs are complete.'
cp $progress before
printf '01.q1 right 2027-01-04\nnonsense\n' >more
lab progress import more
claim 'another line: 64' ends 64
claim 'is named' wrong "more:2: is no line of progress: expected one such as '01.ex1 green 2027-01-03 tries=3'"
claim 'and nothing is imported' cmp before $progress
echo '# lockstep labs, progress 2' >more
lab progress import more
claim 'a newer file is refused' wrong 'more: is of version 2'
lab progress import absent
claim 'no file: 74' ends 74
claim 'is said' wrong 'absent: No such file'

# --- the page
lab 1 page
claim 'the page' ends 0
claim 'has the numbers of this machine, once' test "$(grep -c '^    > 01.5 here: ' ../out)" = 1
claim 'after the claim' grep -qE '^    > 01.5 here: ([0-9,]+) = \1 \(holds, 20[0-9-]{8}\)$' ../out
claim 'and its five parts' test "$(grep -cE '^## [1-5]\. ' ../out)" = 5
for n in 0 1 2 10; do
    COLUMNS=40 lab $n page
    claim "the page of lab $n in 40 columns" narrow
done

# --- the sheet
for n in 0 1 2 10; do
    COLUMNS=40 lab $n page --sheet
    claim "the sheet of lab $n" ends 0
    claim "in 40 columns" narrow
done
COLUMNS=90 lab 1 page --sheet --seed 7
cp ../out ../sheet
claim 'every prediction and question, once' test "$(grep -cE '^[0-9]+\. ' ../out)" -ge 9
claim 'has no answer' test -z "$(grep -E 'refuted|01\.[0-9]' ../out)"
blank() { for _ in {1..32}; do echo; done; }
options() { grep -E '\[[a-f]\] ' "$1" | sed -E 's/^[ *]+//; s/ +/ /g'; }
blank | "$lockstep" lab 1 quiz --seed 7 >../quiz
claim 'its options have the order of a quiz of this seed' grep -qF "$(options ../quiz | head -3)" <<<"$(options ../sheet)"
lab 1 page --sheet --seed 7
claim 'a seed gives one sheet' cmp ../out <("$lockstep" lab 1 page --sheet --seed 7)

# --- wrong words
words() { # text, arguments...
    local text=$1
    shift
    lab "$@"
    claim "$*: 64" ends 64
    claim "$*: said" wrong "$text"
}
words '--claim, --json, --commands, --control and --rows belong' results --control
words '--claim, --json, --commands, --control and --rows belong' 1 page --json
words "unexpected '1': expected one lab" results 1
words 'progress: expected `lockstep lab progress import FILE`' progress
words 'progress: expected `lockstep lab progress import FILE`' progress export x
words "unexpected '2': expected one lab" 1 page 2
words '--sheet belongs to' 1 quiz --sheet
words '--seed belongs to' 1 page --seed 3
words '--yes: nothing is asked here' 1 watch --yes
words "'x': expected the number of an exercise" 1 watch x
words 'there is no lab' 77 page

# --- two commands at once
for i in {1..6}; do
    "$lockstep" lab 1 reset 1 --yes >/dev/null 2>&1 &
    "$lockstep" lab 0 hint 1 >/dev/null 2>&1 &
    "$lockstep" lab 2 hint 1 >/dev/null 2>&1 &
    wait
done
claim 'no line is lost' grep -qE '^00\.ex1 begun [0-9-]+ hints=3$' $progress
claim 'of either' grep -qE '^02\.ex1 begun [0-9-]+ hints=3$' $progress
claim 'each is there once' test -z "$(cut -d' ' -f1 $progress | sort | uniq -d)"

# --- watching; its exercises are linked with the library, which a program without a sanitizer cannot be if that has one
until_said() { for _ in {1..600}; do grep -qE -- "$1" ../watched && return 0; sleep 0.05; done; cat ../watched; return 1; }
if [ -z "$(sed -n 's/^LOCKSTEP_SANITIZE:STRING=//p' "$build/CMakeCache.txt")" ]; then
    mine=lockstep-labs/01_buckets/ex3.c
    sed -i '/^01\.ex3/d; s/^01\.ex1 begun/01.ex1 green/' $progress
    (trap - INT; exec "$lockstep" lab 1 watch --seed 3 >../watched 2>../err </dev/null) &
    pid=$!
    claim 'the first that is not green is checked' until_said '^ RED  01\.ex3 '
    claim 'and watched' until_said '^Watching lockstep-labs/01_buckets/ex3\.c; Ctrl-C ends it\.$'
    cp "$source_dir/labs/01_buckets/ex3/solution.c" new.c && mv new.c $mine
    claim 'checked again when it is replaced' until_said '^  ok  01\.ex3 '
    checks=$(grep -c 'Watching' ../watched)
    sleep 0.5
    claim 'and not when it stays' test "$(grep -c 'Watching' ../watched)" = "$checks"
    busy=$(awk '{ print $14 + $15 }' /proc/$pid/stat)
    sleep 1
    claim 'it waits without a busy loop' test "$(($(awk '{ print $14 + $15 }' /proc/$pid/stat) - busy))" -le 5
    mv $mine away
    sleep 0.4
    claim 'a file that is gone ends nothing' kill -0 $pid
    mv away $mine && echo 'int x' >>$mine
    claim 'one that comes back is checked' until_said 'does not compile'
    kill -INT $pid
    wait $pid
    claim 'Ctrl-C ends it: 0' test $? = 0
    claim 'without a message' test ! -s ../err
    claim 'and every check is a try' grep -qE '^01\.ex3 red [0-9-]+ tries=[3-9]$' $progress
    printf 'void weights(const int *c, int r, double *w)\n{\n    (void)c, (void)r, (void)w;\n    for (;;) { }\n}\n' >$mine
    (trap - INT; exec "$lockstep" lab 1 watch 3 >../watched 2>../err </dev/null) &
    pid=$!
    compiled() { for _ in {1..600}; do pgrep -f "$tmp/work/lockstep-check-.*/check" >/dev/null && return 0; sleep 0.05; done; return 1; }
    claim 'a check that does not end' compiled
    kill -INT $pid
    wait $pid
    claim 'is ended by Ctrl-C, too' test $? = 0
    gone() { for _ in {1..200}; do pgrep -f "$tmp/work/lockstep-check-" >/dev/null || return 0; sleep 0.01; done; return 1; }
    claim 'no process of it is left' gone
    claim 'and no folder' test -z "$(ls ../work)"
    rm $mine
    lab 1 watch 3
    claim 'no file to watch: 74' ends 74
fi

# --- a disk that is full, then read-only: in a mount namespace of its own, which needs root or user namespaces
cd "$tmp" && mkdir disk
for how in 'unshare -m' 'unshare -rm'; do
    $how mount -t tmpfs -o size=64k tmpfs disk 2>/dev/null && break
    how=
done
if [ -z "$how" ]; then
    echo 'skipped: no mount namespace here, so no small disk to fill'
    finish
fi
cat >disk.sh <<'SH'
mount -t tmpfs -o size=96k tmpfs disk && cd disk || exit 1
"$lockstep" lab start >/dev/null || exit 1
"$lockstep" lab 1 hint 1 >/dev/null || exit 1
cp lockstep-labs/progress ../before
head -c 1000000 /dev/zero >fill 2>/dev/null
say() { "$lockstep" lab "$@" </dev/null >../$name.out 2>../$name.err; echo $? >../$name.code; }
name=full say 1 hint 1
cp lockstep-labs/progress ../full.progress
cp lockstep-labs/01_buckets/ex1.c ../mine
name=reset say 1 reset 1 --yes
cmp lockstep-labs/01_buckets/ex1.c ../mine >../reset.same
name=start say start other
TMPDIR=$PWD name=check say 1 check 1
ls -A lockstep-labs | sort | paste -sd' ' >../left
rm fill
mount -o remount,ro . || exit 1
name=ro say 1 hint 1
name=ro_start say start other
name=ro_claims say 1 --claim 12c
cmp lockstep-labs/progress ../before >../ro.same
mount -o remount,rw . || exit 1
name=again say 1 hint 1
cp lockstep-labs/progress ../again.progress
SH
claim 'a small disk' env lockstep="$lockstep" $how bash disk.sh
with() { # name, exit status, words of stderr
    [ "$(cat "$1.code")" = "$2" ] && grep -qF -- "$3" "$1.err" || { cat "$1.code" "$1.out" "$1.err"; return 1; }
}
claim 'full: the hint is shown' grep -q '^Hint 2: ' full.out
claim 'full: it is said that progress is not written, and why' with full 0 'progress is not written: '
claim 'full: with the reason' grep -qF 'No space left on device' full.err
claim 'full: no line is lost' cmp before full.progress
claim 'full: reset fails' with reset 74 'No space left on device'
claim 'full: and the answer of the reader stays' test ! -s reset.same
claim 'full: tasks are not copied' with start 74 'No space left on device'
if [ -z "$(sed -n 's/^LOCKSTEP_SANITIZE:STRING=//p' "$build/CMakeCache.txt")" ]; then
    claim 'full: no space to compile is not a wrong answer' with check 74 'there is no space to compile in'
fi
claim 'full: nothing else is left' grep -qE '^00_conversion 01_buckets 02_sharding 04_pipeline 10_script Makefile progress progress.lock$' left
claim 'read-only: the hint is shown' grep -q '^Hint 2: ' ro.out
claim 'read-only: it is said' with ro 0 'progress is not written: '
claim 'read-only: with the reason' grep -qF 'Read-only file system' ro.err
claim 'read-only: tasks are not copied' with ro_start 74 'Read-only file system'
claim 'read-only: claims are tested' with ro_claims 0 'progress is not written: '
claim 'read-only: no line is lost' test ! -s ro.same
claim 'with space again it is written' grep -qE '^01\.ex1 begun [0-9-]+ hints=2$' again.progress
finish
