#!/bin/bash
# test_readme_table.sh -- README.md's table of what ranks can divide: each command runs, with a small model, and ends with the loss of one rank.
#
#   tests/test_readme_table.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$source_dir" || exit 1
small=(--data.name tests/golden/moby-dick-excerpt.txt.gz --data.tokenizer char --model.d_model 32 --model.seq_len 32 --train.steps 3
    --train.eval_batches 1 --checkpoint.consolidate never)
final() { sed -nE 's/^final step=3 loss=(\S+) .*/\1/p' "$tmp/out"; }
run() { # number, command...: its output in out
    local n=$1
    shift
    rm -rf "$tmp/run-$n"
    timeout -k 5 100 "$@" "${small[@]}" --data.path "$tmp/tokens" --run.dir "$tmp/run-$n" >"$tmp/out" 2>"$tmp/err" </dev/null ||
        { cat "$tmp/out" "$tmp/err"; return 1; }
}
near() { # the loss of one rank: equal but for rounding
    python3 -c 'import sys; a, b = map(float.fromhex, sys.argv[1:]); sys.exit(abs(a - b) > 1e-5 * b)' "$(final)" "$1" || { cat "$tmp/out"; return 1; }
}

declare -A alone
for recipe in gpt2-tiny moe-tiny; do
    claim "$recipe: one rank" run "$recipe" "$build/lockstep" train recipes/$recipe.yaml
    alone[$recipe]=$(final)
done
rows=0
while IFS='|' read -r _ what command _; do
    command=${command//\`/}
    [[ $command == *build/lockstep\ train* ]] || continue
    rows=$((rows + 1))
    read -ra words <<<"$command"
    claim "$what: runs" run $rows "$build/lockstep" "${words[@]:1}"
    recipe=$(basename "${words[2]}" .yaml)
    claim "$what: the loss of one rank" near "${alone[$recipe]}"
    ranks=$(sed -nE 's/.* -n ([0-9]+).*/\1/p' <<<"$command")
    claim "$what: on $ranks ranks" grep -qE "(^|[^0-9])$ranks ranks" "$tmp/out"
done <README.md
claim 'the table is there' test $rows -ge 14
finish
