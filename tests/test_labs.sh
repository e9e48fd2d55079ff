#!/bin/bash
# test_labs.sh -- lockstep lab: the claims of the labs hold and their controls fail, and what a lab says of a claim that does not hold, a
# command that fails, a broken claims.yaml, a terminal of 40 columns, Ctrl-C.
#
#   tests/test_labs.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
mkdir -p work own/bin own/share/lockstep/labs/07_own own/libexec/lockstep/labs
export OMP_NUM_THREADS=1 TMPDIR=$tmp/work
unset COLUMNS

# --- the labs of the project
labs=$("$lockstep" lab)
claim 'lists the labs' grep -qE '^00  Conversion: .*\([0-9]+ claims, 40 min\)$' <<<"$labs"
claim 'in order' grep -qE '^01  Gradient buckets: .*\([0-9]+ claims, 45 min\)$' <<<"$labs"
claim 'and the last' grep -qE '^10  Training script: .*\([0-9]+ claims, 55 min\)$' <<<"$labs"
claim 'and says what to do next' grep -qx 'Next: lockstep lab 0' <<<"$labs"
"$lockstep" lab all --control --rows >out 2>err </dev/null
claim 'every claim holds' test $? = 0
claim 'and every control fails' grep -qxE '([0-9]+) of \1 claims hold, [0-9]+ shown, ([0-9]+) of \2 controls fail as they have to\.' out
claim 'nothing on stderr' test ! -s err
claim 'a claim with its numbers and rows' grep -qE '^ +[0-9,]+ = [0-9,]+ bytes of all ranks \[R21, R213\]$' out
claim 'and the comparison, in which numbers have names' grep -qE '^      compare  small == large$' out
claim 'without --rows none is printed' test -z "$("$lockstep" lab 1 --claim 5 --yes | grep -F '[R')"
claim 'a claim that is measured names the machine' grep -qF "(measured on $(hostname))" <(tr -s ' \n' ' ' <out)
"$build/labs/00_conversion_single" >single
"$build/labs/00_conversion" >one
"$lockstep" run --nproc-per-node 4 -- "$build/labs/00_conversion" model.safetensors >four
claim 'the script that lab 00 converts prints what the converted one does' cmp single one
claim 'four ranks print one line' test "$(wc -l <four)" = 1
claim 'and rank 0 saves the model' "$lockstep" ckpt verify model.safetensors
rm single one four model.safetensors
claim 'the drawing on the page of lab 04 is what the command prints' cmp \
    <("$lockstep" pipeline --schedule 1f1b --stages 4 --micro 8 | grep -E '^rank . [F.B]|^ +[0-9]' | sed -n '1,8s/^/    /p') \
    <(grep -E '^    (rank . [F.B]|       +[0-9])' "$source_dir/labs/04_pipeline/lab.md")
claim 'what commands wrote is gone' test -z "$(ls work)"
claim 'and nothing is in the folder' test "$(ls -A)" = "$(printf 'err\nout\nown\nwork')"
"$lockstep" lab buckets --claim 5,01.14 --json >out </dev/null
claim 'two claims as JSON' python3 - <<'PY'
import json
j = json.load(open("out"))
c = j["labs"][0]["claims"]
assert (j["claims"], j["hold"], j["controls"]) == (2, 2, 0), j
assert [x["id"] for x in c] == ["01.5", "01.14"] and all(x["holds"] and x["error"] is None and x["kind"] == "exact" for x in c), c
assert c[0]["rows"] == ["R21", "R213"] and " = " in c[0]["values"], c
PY
"$lockstep" lab 1 --claim 5 --control --commands >out
claim 'commands are printed' test "$(wc -l <out)" = 3
claim 'as they can be repeated' bash -c "cd '$build' && PATH=\$PWD:\$PATH && command=\$(sed -n '1s/^01.5 small: //p' '$tmp/out') && cd '$tmp' && \$command --run.dir again | tail -n 1 | grep -q '^{\"lockstep_train\"'"
rm -rf again
COLUMNS=40 "$lockstep" lab 1 --claim 9,5 >out </dev/null
claim '40 columns: only words that are longer pass them' test -z "$(awk 'length > 40 && NF > 1 && !/[0-9a-f]{32}/' out)"

# --- a lab of our own, whose starter prints what its words say
cp "$lockstep" own/bin/lockstep
cat >own/libexec/lockstep/labs/07_own <<'SH'
#!/bin/bash
echo "$*" >>"$STARTED"
case $1 in
fail) echo first >&2; echo "it is broken" >&2; exit 3 ;;
code) echo '{"code": 1}'; exit 4 ;;
kill) kill -9 $$ ;;
loud) head -c 2000000 /dev/zero | tr '\0' x ;;
sleep) echo sleeping >>"$STARTED"; sleep 100 & sleep 100 ;;
rank) echo sleeping >>"$STARTED"; exec sleep 97.653 ;;
none) echo nothing ;;
list) echo '{"no": 1}'; echo '["a"]' ;;
*) echo text before; printf '{"v": %s, "w": {"list": [1, "two"], "yes": true, "nil": null}, "text": "abc"}\n' "$1" ;;
esac
SH
chmod +x own/libexec/lockstep/labs/07_own
export STARTED=$tmp/started
yaml=own/share/lockstep/labs/07_own/claims.yaml
# Claims, each a line: id, take, expect, run, control.
write() {
    printf 'lab: "07"\ntitle: Own\nminutes: 1\nclaims:\n' >$yaml
    local id take expect run control
    while IFS='|' read -r id take expect run control; do
        printf -- '- id: "07.%s"\n  says: S%s.\n  run: {r: starter %s}\n  take: {%s}\n  expect: %s\n  kind: exact\n  why: W.\n  control: {r: starter %s}\n' \
            "$id" "$id" "$run" "$take" "$expect" "$control" >>$yaml
    done
}
own() { # arguments: leaves out, err and code
    rm -f started
    own/bin/lockstep lab "$@" >out 2>err </dev/null
    code=$?
}
ends() { [ $code = "$1" ] || { echo "exit status $code, expected $1"; cat out err; return 1; }; }
said() { tr -s ' \n' ' ' <out | grep -qF -- "$1" || { cat out; return 1; }; }
wrong() { grep -qF -- "$1" err || { cat out err; return 1; }; }

write <<'ROWS'
1|a: r/v|a == 1|1|2
2|a: r/v, b: r/w/list/0, t: r/text, y: r/w/yes, n: r/w/#, m: r/w/list/#|a == b * y < n * m|1|9
3|t: r/w/list, u: r/w/list|t == u|1|nothing
ROWS
own 7
claim 'claims of our own hold' ends 0
claim 'with their formulas' said '1 = 1 * 1 [1] < 3 * 2 [6]'
claim 'lists are compared as text' said '[1,"two"] = [1,"two"]'
claim 'equal commands run once' test "$(cat started)" = 1
own 7 --claim 1,2 --control
claim 'controls fail' ends 0
claim 'each command once' test "$(sort started | tr '\n' ' ')" = '1 2 9 '
own own --claim 3 --control
claim 'a control that breaks is no control' ends 1
claim 'and says so' said 'the run has no result, so nothing was compared'
write <<<'1|a: r/v|a == 2|1|2'
own 7
claim 'a claim that does not hold' ends 1
claim 'is red' grep -qE '^ RED  07\.1' out
claim 'with its numbers' said '1 = 2'
claim 'and the command to repeat' said "repeat $tmp/own/bin/../libexec/lockstep/labs/07_own 1"
claim 'and is counted' said '0 of 1 claims hold.'
own 7 --control
claim 'a control in which it holds is red, too' ends 1
claim 'and says so' said '2 = 2: the comparison should fail in this run, and does not'
failing() { # run, words
    write <<<"1|a: r/v|a == 1|$1|2"
    own 7
    claim "$1: red" ends 1
    claim "$1: says how" said "$2"
}
sed -i 's/{r: starter /{r: lockstep run --nproc-per-node 1 -- starter /' $yaml
own 7
claim 'a launcher starts the program of a lab' said '1 = 2'
claim 'which is named to repeat it' said "lockstep run --nproc-per-node 1 -- $tmp/own/bin/../libexec/lockstep/labs/07_own 1"
sed -i 's/-- starter 1/starter 1/' $yaml
own 7
claim 'without -- it is an ordinary word' said 'ended with exit status'
failing fail '`starter fail` ended with exit status 3: it is broken'
failing code '`starter code` ended with exit status 4'
failing kill '`starter kill` was ended by signal 9'
failing loud '`starter loud` printed more than 1048576 bytes and was stopped'
failing none '`starter none` printed no JSON object'
failing list '`starter list` printed no JSON object'
write <<<'1|a: r/exit_status|a == 4|code|1'
own 7
claim 'an exit status can be what is claimed' ends 0
write <<<'1|a: r/exit_status|a == 0|none|code'
own 7
claim 'also that of a command without a result' ends 0
write <<'ROWS'
1|a: r/stderr/it is broken, b: r/exit_status|a == 1 == b - 2|fail|1
2|a: r/stderr/first, b: r/stderr/s|a < b|fail|1
ROWS
own 7 --control
claim 'and so can its messages: lines that have a text' ends 0
claim 'with their numbers' said '1 = 1 = 3 - 2 [1]'
claim 'and each line once' said '1 < 2'
claim 'also of a control' said '0 < 0, so the comparison can fail'
write <<'ROWS'
1|a: r/v|a == 0.1 * 10|1|2
2|a: r/v|a == 1 + 1e-8|1|2
ROWS
sed -i '0,/kind: exact/s//kind: virtual/; 0,/kind: exact/s//kind: numeric 1e-6/' $yaml
own 7 --control
claim 'equal to a tolerance' ends 0
claim 'is not said to be the same' said '1 ~ 0.1 * 10 [1] (within 1e-09)'
claim 'nor with another tolerance' said '1 ~ 1 + 1e-8 [1.00000001] (within 1e-06)'
sed -i 's/1 + 1e-8/1 + 1e-5/; s/0.1 \* 10/0.1 * 10 + 1e-8/' $yaml
own 7
claim 'a larger difference is red' said '0 of 2 claims hold.'
mv own/libexec/lockstep/labs/07_own moved
own 7
claim 'programs that are not built' ends 1
claim 'are said to be missing' said "cannot run: the lab's programs are not built"
mv moved own/libexec/lockstep/labs/07_own

# --- wrong input: the line is named
broken() { # row of a claim, words
    write <<<"$1"
    own 7
    claim "$2: 64" ends 64
    claim "$2: said" wrong "claims.yaml:$2"
}
broken '1|a: r/x|a == 1|1|2' "8: claim 07.1: 'r/x': the result of this run has no such key"
broken '1|a: r/w/list/2|a == 1|1|2' "8: claim 07.1: 'r/w/list/2': the result of this run has no such key"
broken '1|a: r/w/nil|a == 1|1|2' "8: claim 07.1: 'r/w/nil': is null"
broken '1|a: r/w/#/x|a == 1|1|2' "8: claim 07.1: 'r/w/#/x': # is a number of elements"
broken '1|a: r/v|1 / (a - 1) == 1|1|2' '9: claim 07.1: expect: column 3: division by zero'
broken '1|a: r/text|a == 1|1|2' '9: claim 07.1: expect: column 3: a text can only be compared with a text'
broken '1|a: q/v|a == 1|1|2' "8: claim 07.1: 'q/v': expected RUN/KEY"
write <<<'1|a: r/v|a == 1|1|2'
own 08
claim 'no such lab: 64' ends 64
claim 'those that are there are named' wrong "there is no lab '08': expected one of 07_own"
own 7 --claim 9
claim 'no such claim: 64' ends 64
claim 'those that are there are named, too' wrong "lab 07 has no claim '9': expected one of 07.1"
own 7 8
claim 'one lab at a time: 64' ends 64
own --claim 1
claim 'an option without a lab: 64' ends 64
own all --claim 1
claim 'a claim of all labs: 64' ends 64
own 7 --json --commands
claim '--json and --commands: 64' ends 64
TMPDIR=$tmp/absent own 7
claim 'no place for temporary files: 74' ends 74
claim 'says which' wrong "making $tmp/absent/lockstep-lab-"
mv own/share/lockstep/labs labs
own
claim 'no labs: 74' ends 74
claim 'says where they would be' wrong 'there are no labs here: expected a folder labs'
mv labs own/share/lockstep/labs

# --- Ctrl-C
write <<<'1|a: r/v|a == 1|sleep|2'
rm -f started
(trap - INT; exec own/bin/lockstep lab 7 >out 2>err </dev/null) &
pid=$!
for _ in {1..1000}; do grep -q sleeping started 2>/dev/null && break; sleep 0.01; done
claim 'the command runs' grep -q sleeping started
kill -TERM $pid
wait $pid
code=$?
claim 'a stop ends it: 130' ends 130
gone() { for _ in {1..200}; do pgrep -f "$tmp/own/.*sleep" >/dev/null || return 0; sleep 0.01; done; pgrep -af "$tmp/own"; return 1; }
claim 'no process is left' gone
claim 'and no folder' test -z "$(ls work)"
write <<<'1|a: r/v|a == 1|rank|2'
sed -i 's/{r: starter rank}/{r: lockstep run --nproc-per-node 3 -- starter rank}/' $yaml
rm -f started
(trap - INT; exec own/bin/lockstep lab 7 >out 2>err </dev/null) &
pid=$!
ranks() { for _ in {1..1000}; do [ "$(grep -c sleeping started 2>/dev/null)" = 3 ] && return 0; sleep 0.01; done; return 1; }
claim 'three ranks run' ranks
kill -INT $pid
wait $pid
code=$?
claim 'Ctrl-C ends a job: 130' ends 130
no_rank() { for _ in {1..200}; do pgrep -f '^sleep 97.653' >/dev/null || return 0; sleep 0.01; done; return 1; }
claim 'no rank of it is left' no_rank

# --- predictions, on a terminal
printf '  ask: {text: What is v?, options: [one, two], right: 1}\n' >asked
write <<<'1|a: r/v|a == 1|1|2'
cat asked >>$yaml
predict() { # what is typed, words
    python3 - "$1" own/bin/lockstep <<'PY' | tr -s ' \r\n' ' '
import os, pty, sys
typed, program = sys.argv[1:]
pid, fd = pty.fork()
if pid == 0:
    os.execv(program, [program, "lab", "7"] + typed.split("+")[1:])
os.write(fd, typed.split("+")[0].encode())
seen = b""
while True:
    try:
        more = os.read(fd, 4096)
    except OSError:
        break
    if not more:
        break
    seen += more
os.waitpid(pid, 0)
print(seen.decode())
PY
}
claim 'a right prediction' grep -qF '1 of 1 claims hold, 1 of 1 predictions right.' <<<"$(predict $'a\n')"
claim 'a wrong one' grep -qF '0 of 1 predictions right.' <<<"$(predict $'b\n')"
claim 'Enter skips' grep -qE '1 of 1 claims hold\. ?$' <<<"$(predict $'\n')"
claim 'which is marked at once' grep -qF 'right as claim 07.1 shows: ok 07.1' <<<"$(predict $'a\n')"
claim 'with the claim' grep -qF 'wrong it is [a] one, as claim 07.1 shows: ok 07.1' <<<"$(predict $'b\n')"
claim 'no such letter: asked again' grep -qF 'expected a letter from a to b, or Enter to skip' <<<"$(predict $'c\na\n')"
claim 'and the second counts' grep -qF '1 of 1 predictions right.' <<<"$(predict $'yes\n A\n')"
claim 'or none does' grep -qE '1 of 1 claims hold\. ?$' <<<"$(predict $'c\n\n')"
claim '--yes asks nothing' test "$(grep -c 'predict' <<<"$(predict $'a\n+--yes')")" = 0
claim 'the question and its options' grep -qF 'predict What is v? [a] one [b] two >' <<<"$(predict $'a\n')"
finish
