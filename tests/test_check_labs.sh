#!/bin/bash
# The checkers of the labs, checked: tools/check-labs, tools/list-labs and tools/mutate-labs --check are given something broken and must go red.
. "$(dirname "$0")/harness.sh"
tree=$tmp/tree
fresh() {
    rm -rf "$tree"
    mkdir -p "$tree"/{tools,tests,docs}
    cp -r "$source_dir"/{labs,src} "$tree"
    cp -r "$source_dir/docs/handbook" "$tree/docs"
    cp "$source_dir"/tests/*.{c,sh} "$tree/tests"
    cp "$source_dir"/README.md "$tree"
    cp "$source_dir"/tools/{check-labs,list-labs,mutate,mutate-labs,lab_rows.txt,lab_mutants.txt} "$tree/tools"
    cd "$tree" || exit 1
}
red() { # text, command...: fails, and its output has the text
    local text=$1 out
    shift
    if out=$("$@" 2>&1); then echo 'it passed'; return 1; fi
    [[ $out == *"$text"* ]] || { echo "'$text' is not in: $out"; return 1; }
}
fresh
claim 'as it is, every row is asserted or open with a reason' tools/check-labs
claim 'none is missing' has_line ' 0 missing' tools/check-labs --quiet
while IFS='|' read -r name file old new text; do
    sed -i "s~$old~$new~" "$file"
    claim "$name: red" red "$text" tools/check-labs --quiet
    cp "$source_dir/$file" "$file"
done <<'CASES'
a claim without its row|labs/01_buckets/claims.yaml|rows: \[R19\]|rows: [R1]|R19 is asserted nowhere
a claim that is only shown|labs/01_buckets/claims.yaml|^  kind: exact|  kind: shown|R21 is asserted nowhere
a test that has another name|tests/test_ddp_misuse.c|refuses_models_that_differ|refuses_models|R29: tests/test_ddp_misuse.c does not have "refuses_models_that_differ"
a test that names its row no more|tests/test_scaling.sh|R89|R9|R89 is asserted nowhere
a line of the list without a place|tools/lab_rows.txt|^R83 claim 10.2|R83 10.2|expected ROW claim ID
a claim that is gone|tools/lab_rows.txt|^R83 claim 10.2|R83 claim 10.99|R83: no lab asserts a claim 10.99
an open row that something asserts|tools/lab_rows.txt|^R83 claim 10.2|R19 open until labs/08_topology: its lab|R19 is asserted by claim 01.1
an excerpt that is not in the source|labs/00_conversion/lab.md|ls_optim_step(adam);|ls_optim_step(sgd);|R188: labs/00_conversion/lab.md: this excerpt is not in starter.c
a part that is missing|labs/00_conversion/lab.md|^## 5. Interview|## 5. Talk|"5. Interview" is missing
a snippet without its name|labs/00_conversion/lab.md|^Main transition|Main step|R190: labs/00_conversion/lab.md
a misunderstanding that nothing refutes|labs/01_buckets/lab.md|01.1: every rank has|every rank has|R191: labs/01_buckets/lab.md: no asserted claim refutes "DDP saves memory."
a tip whose claim is gone|labs/README.md|lab 1 --claim 6|lab 1 --claim 99|R200: labs/README.md: a tip names claim 99 of lab 1
a chapter without a heading|docs/handbook/zero.md|^## State placement|## Where state is|R238: docs/handbook/zero.md
a paper that is not named|docs/handbook/sources.md|Rajbhandari|Another|R241: docs/handbook/sources.md
CASES
mkdir labs/08_topology
echo 'R230 open until labs/08_topology: its lab' >>tools/lab_rows.txt
claim 'what an open row waits for is there: red' red 'R230 is open until labs/08_topology is there, and it is' tools/check-labs --quiet
fresh
claim 'list-labs: the index is what it writes' tools/list-labs --check
sed -i 's~labs/02_sharding/lab.md~labs/lab.md~' docs/handbook/zero.md
claim 'a chapter that does not link its lab is red' red 'docs/handbook/zero.md: does not link labs/02_sharding/lab.md' tools/list-labs --check
fresh
claim 'mutate-labs: all mutants apply' tools/mutate-labs --check
sed -i 's/^@ \(dp-first-limit\S*\) \(\S*\) .*/@ \1 \2 01.99/' tools/lab_mutants.txt
claim 'a claim that no lab has is red' red 'no lab has a claim 01.99' tools/mutate-labs --check
sed -i 's/o->limit++/o->limit += 1/' src/parallel/assign.c
claim 'a line that has changed is red' red 'dp-first-limit-for-all-buckets: its old text is 0 times' tools/mutate-labs --check
finish
