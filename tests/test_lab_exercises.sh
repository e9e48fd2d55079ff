#!/bin/bash
# test_lab_exercises.sh -- exercises of the labs: every task is red as it is given, every solution green, every typical wrong answer red with
# a message of its own. tests/test_lab_tasks.sh has code that misbehaves, and the folder of tasks.
#
#   tests/test_lab_exercises.sh BUILD        LOCKSTEP_TEST_LONG=1: each answer with two seeds more
. "$(dirname "$0")/harness.sh"
. "$(dirname "$0")/harness_lab.sh"
idea() { sed -n 's/^  idea *//p' ../out; }

lab start
claim 'tasks are copied' ends 0
seeds=(2) # the answer as it is given has seed 1
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || seeds=(2 1 3)
for exercise in "$source_dir"/labs/*/ex*; do
    folder=$(basename "$(dirname "$exercise")") n=${exercise##*/ex}
    name=${folder%%_*}.ex$n mine=lockstep-labs/$folder/ex$n.c
    lab "$folder" check "$n" --seed 1
    claim "$name: red as it is given" ends 1
    claim "$name: with expected, found and an idea" grep -qE '^  idea ' ../out
    cp "$exercise/solution.c" "$mine"
    for seed in "${seeds[@]}"; do
        lab "$folder" check "$n" --seed $seed
        claim "$name: the solution is green, seed $seed" ends 0
    done
    claim "$name: on 100 shapes and more" grep -qE '^[1-9][0-9]{2,} of [1-9][0-9]{2,} shapes are right$' ../out
    ideas=
    for file in "$exercise"/wrong_*.c; do
        cp "$file" "$mine"
        for seed in "${seeds[@]}"; do
            lab "$folder" check "$n" --seed $seed
            claim "$name: $(basename "$file") is red, seed $seed" ends 1
        done
        ideas+=$(idea)$'\n'
    done
    claim "$name: three wrong answers and more" test "$(ls "$exercise"/wrong_*.c | wc -l)" -ge 3
    claim "$name: each has its own message" test -z "$(printf %s "$ideas" | sort | uniq -d)"
    claim "$name: and not the general one" test "$(printf %s "$ideas" | grep -c .)" = "$(ls "$exercise"/wrong_*.c | wc -l)"
    for hint in 1 2 3; do
        lab "$folder" hint "$n"
        claim "$name: hint $hint" said "Hint $hint: "
    done
    lab "$folder" hint "$n"
    claim "$name: no fourth" ends 64
done
finish
