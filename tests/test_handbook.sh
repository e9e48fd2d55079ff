#!/bin/bash
# test_handbook.sh -- the commands of the handbook's chapters print what the pages show, and its exact numbers are those of a run.
#
#   tests/test_handbook.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
offline
. "$source_dir/tests/harness_page.sh"
for page in "$source_dir"/docs/handbook/*.md; do run_page "docs/handbook/${page##*/}"; done
claim 'the chapters have commands' test $commands -ge 15
claim 'the exact numbers of the handbook are those of a run' "$source_dir/tools/results" build --check

# A number that is not that of the run is named.
cp -r "$source_dir/docs/handbook" wrong
sed -i '/"bucket": {/,/}/s/38,440/38,441/' wrong/results/ddp.json
says_which() {
    local out
    out=$(LOCKSTEP_HANDBOOK=$tmp/wrong "$source_dir/tools/results" build --check) && return 1
    [[ $out == *'ddp.bucket: a run says "38,440 bytes", and docs/handbook/results/ddp.json has "38,441 bytes"'* ]] || { echo "$out"; return 1; }
}
grep -v 'alpha\|^$\|^#' "$source_dir/docs/handbook/results.txt" | sed -n '/^@ ddp bucket /,/^=/p' >wrong/results.txt
claim 'a number that a run refutes is named, with both' says_which
printf '@ ddp bucket exactly {}\n' >wrong/results.txt
claim 'a line of results.txt that has another form is named' fails_with 1 'docs/handbook/results.txt:1: expected "@ FILE NAME' \
    env LOCKSTEP_HANDBOOK="$tmp/wrong" "$source_dir/tools/results" build --check

# Lines of an excerpt that have moved in their file get their numbers.
first=$(grep -n '^static ls_status reduce_full' "$source_dir/src/parallel/bucket.c" | cut -d: -f1)
printf '# A\n\n```c src/parallel/bucket.c:5-6\nstatic ls_status reduce_full(ls_ddp *d)\n{\n```\n' >wrong/a.md
moves() {
    LOCKSTEP_HANDBOOK=$tmp/wrong "$source_dir/tools/results" --excerpts && grep -qx "\`\`\`c src/parallel/bucket.c:$first-$((first + 1))" wrong/a.md ||
        { cat wrong/a.md; return 1; }
}
claim 'an excerpt whose lines have moved gets their numbers' moves
finish
