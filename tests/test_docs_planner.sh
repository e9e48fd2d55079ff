#!/bin/bash
# test_docs_planner.sh -- the commands of docs/planner.md print what the page shows.
#
#   tests/test_docs_planner.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
offline
. "$source_dir/tests/harness_page.sh"
run_page docs/planner.md
claim 'the page has commands' test $commands -ge 5
finish
