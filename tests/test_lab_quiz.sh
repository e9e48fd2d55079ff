#!/bin/bash
# test_lab_quiz.sh -- quizzes of the labs: answers are what the claims show on this machine, each wrong option is refuted by a claim, missed
# questions come first the next time, and a wrong quiz.yaml names its line.
#
#   tests/test_lab_quiz.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
mkdir work tasks own && cd tasks || exit 1
export TMPDIR=$tmp/work OMP_NUM_THREADS=1 COLUMNS=110
blank() { for _ in {1..32}; do echo; done; } # skips every question
shown() { # lab, answers: letters of choices as in quiz.yaml become those that seed 5 shows
    blank | "$lockstep" lab "$1" quiz --seed 5 --json 2>../err | tail -1 >../shown
    shift
    python3 - "$@" <<'PY'
import json, sys
questions = json.load(open("../shown"))["answers"]
for i, a in enumerate(sys.argv[1:]):
    places = [o["place"] for o in questions[i]["options"]] if i < len(questions) else []
    print("abcdef"[places.index("abcdef".find(a) + 1)] if len(a) == 1 and "abcdef".find(a) + 1 in places else a)
PY
}
take() { # lab, answers, one a line
    shown "$@" >../typed
    timeout -k 5 100 "$lockstep" lab "$1" quiz --seed 5 <../typed >../out 2>../err
    code=$?
}
quiz() { take 1 "$@"; }
fails() { fails_with 64 "$@" </dev/null; }
right() { sed -nE 's/^([0-9]+) of ([0-9]+) right.*/\1 of \2/p' ../out; }
said() { tr -s ' \n' ' ' <../out | grep -qF -- "$1" || { cat ../out ../err; return 1; }; }

# --- lab 00
answers() { # option, samples, models: for every question of lab 00
    take 0 $1 $1 $1 "$2" $1 $1 "$3" say
}
answers b 32 4
claim 'lab 00: all answers are right' test "$(right)" = '7 of 7'
answers a 8 1
claim 'lab 00: all answers are wrong' test "$(right)" = '0 of 7'
claim 'lab 00: the right number of samples' grep -qE '^wrong     32 samples$' ../out
claim 'lab 00: and of models' grep -qE '^wrong     4 models$' ../out

# --- lab 02
take 2 b b bdceaf 1 a b b b 120832 b b say
claim 'lab 02: all answers are right' test "$(right)" = '11 of 11'
take 2 a a abcdef 2 b a a a 966656 a a say
claim 'lab 02: all answers are wrong' test "$(right)" = '0 of 11'
claim 'lab 02: the right number of gathers' grep -qE '^wrong     1 times$' ../out

# --- lab 10
take 10 b 26 a a b b a b 126 say
claim 'lab 10: all answers are right' test "$(right)" = '9 of 9'
take 10 c 32 b b a a b a 6 say
claim 'lab 10: all answers are wrong' test "$(right)" = '0 of 9'

# --- lab 01
quiz b cdab 3 b b b b b c 'weights are replicated'
claim 'all answers are right' test "$(right)" = '9 of 9'
claim 'exit status' test $code = 0
claim 'say it: four slots to tick' test "$(grep -cE '\[ \] (state|shape|collective|number): ' ../out)" = 4
claim 'nothing is written without tasks' test -z "$(ls)"
claim 'nor left' test -z "$(ls ../work)"
"$lockstep" lab start >../out
quiz a abcd 4 a a a a a a say
claim 'all answers are wrong' test "$(right)" = '0 of 9'
claim 'a wrong option prints the claim that refutes it, with its numbers' grep -qE '^wrong     01\.5 A DDP step moves gradients, never inputs\. ([0-9,]+) = \1$' ../out
claim 'a wrong number prints the right one' grep -qE '^wrong     3 buckets$' ../out
claim 'a wrong order prints the right one' grep -qE '^wrong     cdab$' ../out
claim 'progress has them' test "$(grep -c '^01\.q[1-9] missed ' lockstep-labs/progress)" = 9
quiz b '' '' '' '' '' '' '' ''
claim 'Enter skips' test "$(right)" = '1 of 1'
quiz 'c, d, a b' # q1 was answered again, so q2 is the first that was missed
claim 'those that were missed come first' test "$(right)" = '1 of 1'
claim 'and become right' grep -qE '^01\.q2 right 20[0-9-]{8} tries=2$' lockstep-labs/progress
claim 'the end of the input ends it' test $code = 0
{ echo 3; blank; } | "$lockstep" lab 1 quiz --seed 5 --json >../out 2>../err
claim 'a question that was missed is asked once a session' python3 - <<'PY'
import json
ids = [q["id"] for q in json.loads(open("../out").read().splitlines()[-1])["answers"]]
assert ids[0] == "01.q3" and len(ids) == len(set(ids)) == 10, ids
PY
sed -i 's/^01\.q3 right/01.q3 missed/' lockstep-labs/progress
quiz 3.02
claim 'a number within 1 %' test "$(right)" = '1 of 1'
mkdir ../fresh && cd ../fresh || exit 1 # where no question was missed
quiz z b
claim 'no such letter is asked for again' said 'expected a letter from a to c, or Enter to skip'
claim 'and not counted' test "$(right)" = '1 of 1'
quiz '' bb cdab
claim 'nor is an order without each letter' said 'expected each letter once, or Enter to skip'
claim 'which is asked for again, too' test "$(right)" = '1 of 1'
quiz '' '' three 3
claim 'nor a word for a number' said 'expected a number, or Enter to skip'
claim 'likewise' test "$(right)" = '1 of 1'
# --- the order of options, and JSON
order_of() { blank | "$lockstep" lab 1 quiz --seed "$1" --json | tail -1; }
claim 'a seed gives one order' test "$(order_of 7)" = "$(order_of 7)"
claim 'the seed is said' grep -q 'options in the order of seed 7\. ' <<<"$(blank | "$lockstep" lab 1 quiz --seed 7)"
for seed in {1..20}; do order_of $seed; done >../orders
claim 'the right option is at every place' python3 - <<'PY'
import json
runs = [json.loads(line)["answers"] for line in open("../orders")]
first = [[o["place"] for o in q[0]["options"]] for q in runs if q[0]["id"] == "01.q1"]
assert len(first) == 20 and all(sorted(p) == [1, 2, 3] for p in first), first
assert {p.index(2) for p in first} == {0, 1, 2}, first
PY
printf '%s\n' "$(shown 1 b)" abcd 3 | "$lockstep" lab 1 quiz --seed 5 --json | tail -1 >../json
claim 'one JSON object of what was answered' python3 - <<'PY'
import json
j = json.load(open("../json"))
assert (j["lockstep_lab_quiz"], j["lab"], j["seed"], j["asked"], j["right"]) == (1, "01", 5, 3, 2), j
q = {x["id"]: x for x in j["answers"]}
assert q["01.q1"]["right"] is True and q["01.q2"]["right"] is False and q["01.q2"]["given"] == "abcd", q
assert q["01.q3"]["right"] is True and q["01.q4"]["right"] is None and q["01.q4"]["given"] is None, q
PY
claim '--yes has nothing to answer' fails '--yes: nothing is asked here' "$lockstep" lab 1 quiz --yes
claim 'another second word' fails "unexpected 'quizz'" "$lockstep" lab 1 quizz
cd ../tasks
claim '--commands has none' fails '--claim, --json, --commands, --control and --rows belong to the claims' "$lockstep" lab 1 quiz --commands

# --- every wrong option names a claim that holds, and each question has one right answer
claims_of() { sed -nE 's/^  claims: \[(.*)\]$/\1/p; s/^  (number|order): "?([0-9]+\.[0-9]+[a-z]?).*/\2/p' "$source_dir/labs/01_buckets/quiz.yaml" | tr -d '" ' | tr ',' '\n' | sort -u; }
claim 'the claims of the quiz hold' "$lockstep" lab 1 --yes --claim "$(claims_of | paste -sd,)"
claim 'five questions and more' test "$(grep -c '^- id:' "$source_dir/labs/01_buckets/quiz.yaml")" -ge 5

# --- a wrong file
cd ../own && mkdir -p bin share/lockstep/labs && cp "$lockstep" bin/ && cp -r "$source_dir/labs/01_buckets" share/lockstep/labs/
yaml=share/lockstep/labs/01_buckets/quiz.yaml
broken() { # sed, words
    cp "$source_dir/labs/01_buckets/quiz.yaml" $yaml
    sed -i "$1" $yaml
    claim "$1: $2" fails "$2" bin/lockstep lab 1 quiz
}
broken 's/claims: \["01.5", "01.5", "01.5"\]/claims: ["01.5", "01.5", "01.99"]/' "quiz.yaml:5: quiz question 01.q1: lab 01 has no claim '01.99'"
broken 's/claims: \["01.5", "01.5", "01.5"\]/claims: ["01.5", "01.5"]/' 'quiz.yaml:5: quiz question 01.q1: expected a claim per option'
broken 's/claims: \["01.5", "01.5", "01.5"\]/claims: ["01.5", "01.5", "01.11c"]/' 'quiz.yaml:5: quiz question 01.q1: an answer is a claim that is asserted'
broken '0,/right: 2/s//right: 4/' 'quiz.yaml:5: quiz question 01.q1: expected a claim per option, and the number of the right one'
broken '0,/  right: 2/s///' 'quiz.yaml:5: quiz question 01.q1: options need claims and right'
broken 's/01.3\/later/01.3\/late/' 'quiz.yaml:16: quiz question 01.q3: the claim takes no value of this name'
broken 's/01.3\/later/01.3/' 'quiz.yaml:16: quiz question 01.q3: expected number: CLAIM/NAME, and a unit'
broken 's/launch: its/lunch: its/' 'quiz.yaml:11: quiz question 01.q2: a label is not of a value that the claim takes'
broken 's/id: "01.q3"/id: "01.q2"/' 'quiz.yaml:16: quiz question 01.q2: there is already a quiz question of this id'
broken 's/  unit: buckets/  number: x/' 'quiz.yaml:19: number: is given twice'
broken 's/^lab: "01"/lab: "02"/' 'quiz.yaml:2: lab: is another lab than that of claims.yaml'
broken 's/  unit: buckets/  labels: {later: a, step1: b}/' 'quiz.yaml:16: quiz question 01.q3: options need claims and right'
broken 's/  right: 2/  labels: {a: b}/' 'quiz.yaml:9: labels: expected one of options, labels and say'
broken 's/^questions:/question:/' 'quiz.yaml:3: question: is not a key that is known here'
rm $yaml
claim 'no quiz' fails 'lab 01_buckets has no quiz' bin/lockstep lab 1 quiz
finish
