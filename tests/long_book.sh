#!/bin/bash
# long_book.sh -- the pages of the handbook in a browser, from disk and without a network: no error, no foreign request, no broken
# link, no sideways scroll at 390, 768 and 1280 pixels, nothing that axe finds, keyboard, dark, print, without JavaScript, and figures that answer.
#
#   tests/long_book.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
modules=$source_dir/.cache/book/node_modules
missing() { echo "$1 is missing: scripts/setup --book installs it"; exit 1; }
chromium=$(command -v chromium) || missing chromium
command -v node >/dev/null || missing node
[ -d "$modules/playwright-core" ] && [ -d "$modules/@axe-core/playwright" ] || missing 'playwright-core or @axe-core/playwright'

[ -e "$build/book/figures.js" ] || { echo "$build/book/figures.js is missing: scripts/setup installs what builds it"; exit 1; }

claim 'the book is built' "$build/tools/book" "$source_dir" book "$build/book/figures.js"
browser() { timeout -k 5 900 node "$source_dir/tests/book_browser.mjs" "$1" "$modules" "$chromium"; }
read -r ok bad < <(browser book | tee browser.log | sed -nE 's/^([0-9]+) passed, ([0-9]+) failed$/\1 \2/p')
passed=$((passed + ${ok:-0})) failed=$((failed + ${bad:-1}))
[ "${bad:-1}" = 0 ] || cat browser.log
live_small() { [ "$(cat book/* | wc -c)" -le 3000000 ]; }
claim 'with live figures it has at most 3 MB' live_small
claim 'all pages were looked at' test "${ok:-0}" -ge 100

# What the browser looks for is found, in a page that has all of it.
mkdir broken && cp book/book.css broken/
cat >broken/index.html <<'PAGE'
<!DOCTYPE html><html><head><title>x</title><link rel="stylesheet" href="book.css"><script src="https://example.org/x.js"></script></head>
<body style="background: #777; color: #888"><nav style="display: block !important">x</nav><a href="none.html" style="outline: none">y</a>
<main style="width: 1500px; max-width: none">z<script>document.querySelector('main').textContent = 'short'; nothing.here()</script><figure data-request="ring"><div class="picture-box">o</div></figure><img src="x.png"></main></body></html>
PAGE
browser broken >broken.log
for what in 'nothing fails, and nothing foreign is asked for' 'asks for https://example.org/x.js' 'error: nothing is not defined' 'cannot load file:' \
    'at 390: no sideways scroll' 'at 768: no sideways scroll' 'at 1280: no sideways scroll' 'none.html: no such page' \
    'color-contrast' 'image-alt' 'html-has-lang' 'the paper is light' 'its text is there without JavaScript' 'its focus is not seen' \
    'it prints links to other chapters' 'it prints on dark paper' 'there are pages' 'ring: no values to change'; do
    claim "in a broken page, the browser finds: $what" grep -qF -- "$what" broken.log
done
finish
