#!/bin/bash
# test_figures_page.sh -- figures.js: sliders, presets and Play give what `lockstep figure` prints.
#
#   tests/test_figures_page.sh BUILD
. "$(dirname "$0")/harness.sh"
js=$build/book/figures.js
missing() { echo "$1 is missing: scripts/setup --figures, then make build"; return 1; }

if ! command -v node >/dev/null; then
    claim 'node is there' missing node
elif [ ! -e "$js" ]; then
    claim 'figures.js is there' missing "$js"
else
    while IFS= read -r line; do
        case $line in
        'ok: '* | 'FAILED: '*) claim "${line#*: }" test "${line%%:*}" = ok ;;
        *) claim 'only claims are printed' test -z "$line" ;;
        esac
    done < <(node "$source_dir/tests/figures_page.mjs" "$js" "$build/lockstep" 2>&1; echo "ok: $?" | sed 's/ok: \([1-9]\)/FAILED: status \1/')
    claim 'all claims were made' test $((passed + failed)) -ge 30
    claim 'the script is short' test "$(wc -l <"$source_dir/tools/figures/page.js")" -le 250
    claim 'and asks for nothing' test -z "$(grep -nE 'fetch\(|XMLHttp|import\(|https?:|localStorage' "$source_dir/tools/figures/page.js")"
fi
finish
