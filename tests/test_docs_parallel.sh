#!/bin/bash
# test_docs_parallel.sh -- the commands of docs/parallel.md print what the page shows: memory, bytes, buckets, messages. What
# depends on the CPU (losses, digests) or on time may differ, but runs have one digest where they have one on the page.
#
#   tests/test_docs_parallel.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
offline
. "$source_dir/tests/harness_page.sh"
run_page docs/parallel.md
claim 'the page has commands' test $commands -gt 15
claim 'runs with the bits of DDP, and others' test ${#digest_there[@]} -ge 4
finish
