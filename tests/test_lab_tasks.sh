#!/bin/bash
# test_lab_tasks.sh -- the folder of tasks of the labs, and a check of an exercise: code that loops, crashes, forks, floods, takes memory or
# does not compile, an answer that is nearly right, hints, reset, the solution, progress, wrong words.
#
#   tests/test_lab_tasks.sh BUILD
. "$(dirname "$0")/harness.sh"
. "$(dirname "$0")/harness_lab.sh"

# --- without tasks
lab 1 check 1
claim 'no tasks: 64' ends 64
claim 'says how to get them' wrong '`lockstep lab start` copies them into lockstep-labs'
lab 1 --claim 9
claim 'claims need none' ends 0
claim 'nothing is written' test -z "$(ls)"
lab start
claim 'tasks are copied' ends 0
claim 'what is next' said 'Next: edit lockstep-labs/00_conversion/ex1.c'
claim 'they compile' make -s -C lockstep-labs CFLAGS='-std=c17 -Wall -Wextra -Werror'
make -s -C lockstep-labs clean

# --- JSON
lab 1 check 1 --seed 4 --json
claim 'a red check as JSON: 1' ends 1
claim 'says file, seed and what was found' python3 -c 'import json; j = json.load(open("../out"))
assert (j["lockstep_lab_check"], j["exercise"], j["seed"], j["green"]) == (1, "01.ex1", 4, False), j
assert j["file"] == "lockstep-labs/01_buckets/ex1.c" and "expected" in j["said"], j'

# --- answers that are nearly right
near() { # lab, exercise, sed, words: the solution with one change is red
    local folder=$1 n=$2
    cp "$source_dir/labs/$folder/ex$n/solution.c" lockstep-labs/$folder/ex$n.c
    sed -i "$3" lockstep-labs/$folder/ex$n.c
    for seed in 1 2 3 4; do
        lab $folder check $n --seed $seed
        claim "$folder ex$n, $3: red, seed $seed" ends 1
        claim "$folder ex$n, $3: says why, seed $seed" said "$4"
    done
}
near 00_conversion 2 's/writers += e->wrote\[r\]/writers += e->wrote[1]/' 'rank 0 writes, and nobody else does'
near 00_conversion 2 's/e->rank_batch \* e->ranks != e->global_batch/e->rank_batch == e->global_batch/' 'each rank reads its share'
near 01_buckets 1 '0,/^{/s//{ bucket[n] = 0;/' 'something is written outside of bucket'
near 01_buckets 2 's/^}/    launched[n + 3] = 1;\n}/' 'something is written outside of launched'
near 01_buckets 2 's/^}/    count[-1] = 1;\n}/' 'something is written outside of launched'
near 01_buckets 3 's/^}/    weight[ranks] = 1;\n}/' 'something is written outside of weight'
near 10_script 1 '0,/^{/s//{ index[n] = 0;/' 'something is written outside of index'

# --- code that misbehaves
mine=lockstep-labs/01_buckets/ex3.c
bad() { # statement, words
    printf '#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nvoid weights(const int *c, int r, double *w)\n{\n    (void)c, (void)r, (void)w;\n    %s\n}\n' "$1" >$mine
    lab 1 check 3
    claim "$1: red" ends 1
    claim "$1: says what happened" said "$2"
}
bad 'for (;;) { }' 'it took longer than 10 s and was stopped'
bad 'for (;;) puts("a line that is printed again and again");' 'it printed more than 1048576 bytes and was stopped'
bad '*(volatile int *)r = 0;' 'it was ended by signal 11, a segmentation fault'
bad 'for (;;) { char *p = malloc(1 << 26); if (!p) abort(); }' 'it was ended by signal 6'
bad 'exit(0);' 'it ended before all shapes were checked: does it call exit?'
bad 'int x' 'it does not compile'
bad 'if (fork() == 0) { close(1); close(2); execlp("sleep", "sleep", "97.531", (char *)0); }' 'idea'
printf '#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void first(void)\n{\n    puts(malloc(1ull << 30) ? "it has 1 GiB" : "it has less");\n}\n' >$mine
cat "$source_dir/labs/01_buckets/ex3/solution.c" >>$mine
lab 1 check 3
claim 'memory is limited before the first line of a task runs' said 'it has less'
claim 'and the task is checked' ends 0
gone() { for _ in {1..200}; do pgrep -f 'sleep 97.531' >/dev/null || return 0; sleep 0.01; done; return 1; }
claim 'what it has started is gone' gone
claim 'what was compiled is gone' test -z "$(ls ../work)"
bad 'printf("7");' 'shape 1 of 200'
claim 'what a task prints does not run into the verdict' grep -qE '^shape 1 of 200' ../out
printf 'void weights(const int *c, int r, double *w)\n{\n    (void)c, (void)r, (void)w;\n    printf("x");\n}\n' >$mine
lab 1 check 3
claim 'a function that is not declared does not compile' said 'it does not compile'
CC=no-such-compiler lab 1 check 3
claim 'no compiler: 71' ends 71
claim 'says so' wrong "the C compiler 'no-such-compiler' cannot be started: install one (gcc), or set CC"
rm $mine
lab 1 check 3
claim 'no file: 74' ends 74
claim 'says how to get it' wrong '`lockstep lab start` copies the tasks that are missing'

# --- hints, beginning again, the solution
for hint in 1 2 3; do
    lab 1 hint 3
    claim "hint $hint" said "Hint $hint: "
done
lab start
claim 'a missing task is copied' said ': 1 new file'
lab start other
claim 'a folder of another name: a check starts in it' said 'Next: `cd other`, edit 00_conversion/ex1.c, then `lockstep lab 00 check 1`'
claim 'another folder' test -e other/01_buckets/ex3.c
echo 'mine' >$mine
lab 1 reset 3
claim 'reset asks first: 64' ends 64
claim 'and leaves the file' grep -qx mine $mine
lab 1 reset 3 --yes
claim 'reset puts the task back' cmp -s $mine "$source_dir/labs/01_buckets/ex3/task.c"
claim 'and keeps what was there' grep -qx mine $mine.old
lab 1 solution 3
claim 'the solution asks first: 64' ends 64
lab 1 solution 3 --yes
claim 'and is shown' cmp -s ../out "$source_dir/labs/01_buckets/ex3/solution.c"
cd lockstep-labs && cp ../../out 01_buckets/ex3.c
(cd .. && lab 1 check 3)
"$lockstep" lab 1 check 3 >../../out
claim 'inside the folder, too' grep -qF '  ok  01.ex3  ./01_buckets/ex3.c' ../../out
cd ..

# --- progress
progress=lockstep-labs/progress
claim 'progress says what was shown' grep -qE '^01\.ex3 green 20[0-9-]{8} tries=[0-9]+ hints=3 solution$' $progress
claim 'one line per item' test "$(cut -d' ' -f1 $progress | sort | uniq -d | wc -l)" = 0
claim 'the list counts' grep -qF '1 of 5 exercises green' <("$lockstep" lab | tr -s ' \n' ' ')
printf 'a line of mine\n\n01.ex9 from the future x=1\n' >>$progress
lab 1 check 3
claim 'unknown lines stay' test "$(tail -n 3 $progress)" = "$(printf 'a line of mine\n\n01.ex9 from the future x=1')"
lab 1
claim 'claims are seen' grep -qE '^01\.claims seen 20' $progress
claim 'and listed' grep -qF 'claims seen' <("$lockstep" lab | tr -s ' \n' ' ')
cp $progress before
sed -i '1s/1$/2/' $progress
cp $progress newer
lab 1 check 3
claim 'a newer file: the check is done' ends 0
claim 'a newer file: said' wrong 'progress is not written: lockstep-labs/progress: is of version 2'
claim 'a newer file: left as it is' cmp newer $progress
printf '\0\377broken' >$progress
lab 1 check 3
claim 'a broken file: the check is done' ends 0
claim 'a broken file: said' wrong 'progress is not written: lockstep-labs/progress: has a zero byte'
rm $progress && mkdir $progress
lab 1 check 3
claim 'a file that cannot be written: the check is done' ends 0
claim 'a file that cannot be written: said' wrong 'progress is not written: '
rmdir $progress

# --- wrong words
words() { # text, arguments...
    local text=$1
    shift
    lab "$@"
    claim "$*: 64" ends 64
    claim "$*: said" wrong "$text"
}
words "lab 01_buckets has no exercise 9: expected 1 to 5" 1 check 9
words "'chek': expected check, hint, solution or reset" 1 chek 1
words "'x': expected the number of an exercise" 1 check x
words "unexpected 'check': expected one lab" 1 check
words "unexpected 'more': expected one lab" 1 check 1 more
words "unexpected 'more': expected one lab" start here more
words '--seed belongs to' 1 --seed 3
words '--claim, --json, --commands, --control and --rows belong to the claims' 1 check 1 --commands
words '--json: of an exercise only check prints JSON' 1 hint 1 --json
finish
