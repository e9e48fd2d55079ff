#!/bin/bash
# test_book.sh -- the generator of the handbook: the book of this repository, and what it refuses, by file and line.
#
#   tests/test_book.sh BUILD
. "$(dirname "$0")/harness.sh"
cd "$tmp" || exit 1
book=$build/tools/book
[ -x "$book" ] || { echo "$book is missing: libmd4c-dev was not there when CMake ran (scripts/setup installs it)"; exit 1; }

claim 'the book of this repository is built' "$book" "$source_dir" whole
pages() { ls whole/*.html | wc -l; }
claim 'every chapter is a page' test "$(pages)" = "$(ls "$source_dir"/docs/handbook/*.md | wc -l)"
same_as_page() { # page, HTML that has to be in it
    grep -qF -- "$2" "whole/$1.html" || { echo "whole/$1.html has no $2"; return 1; }
}
claim 'a number leads to its command' same_as_page ddp '<a class="number" href="#ddpjsonbucket">38,440 bytes<span class="made-by">build/lockstep train'
claim 'the table of numbers says that a test compares it' same_as_page ddp '</code></td><td><span id="ddpjsonbucket">38,440 bytes</span>, <span id="ddpjsonstep_small">58,224 bytes</span></td><td>everywhere: a test compares it; commit '
claim 'a heading can be linked to' same_as_page all_reduce '<h2 id="communication-cost">'
claim 'a link to a chapter leads to its page' same_as_page zero '<a href="all_reduce.html#synchronization-pattern">'
claim 'a picture says what it shows' same_as_page ddp '<pre tabindex="0" role="img" aria-label="Each bucket'
claim 'an excerpt names its file' same_as_page ddp '<figcaption>src/parallel/bucket.c:'
claim 'a file of the repository is named, not linked' same_as_page sources '<span class="elsewhere">Collectives</span> (<code>docs/collectives.md</code>)'
for chapter in ddp all_reduce zero; do
    claim "$chapter is a mechanism" test "$(sed -n '/^## Mechanisms/,/^## Look/p' "$source_dir/docs/handbook/README.md" | grep -c "($chapter.md)")" = 1
done
no_foreign() { ! grep -nE '<(script|img|iframe|link [^>]*href="https?:)|@import|url\([^#]' whole/*; }
claim 'no page loads anything but the style sheet' no_foreign
small() { [ "$(cat whole/* | wc -c)" -le 3000000 ]; }
claim 'the book has at most 3 MB' small
printf 'lockstepFigures\n' >script.js
claim 'the book with live figures is built' "$book" "$source_dir" live script.js
claim 'a page with figures has their script' grep -q '<script src="figures.js" defer></script>' live/ddp.html
no_script() { ! grep -q '<script' live/glossary.html; }
claim 'a page without has none' no_script
claim 'the script is copied' cmp script.js live/figures.js
claim 'a script that is not there is named' fails_with 1 'no.js' "$book" "$source_dir" other no.js

# A small handbook, which every case below changes in one place.
mkdir -p small/docs/handbook/results small/tools/book small/src
printf 'p { }\n' >small/tools/book/book.css
printf 'int one;\nint two;\nint three;\n' >small/src/a.c
printf '{"commit": "abc", "machine": "m", "results": {"n": {"text": "5 bytes", "kind": "exact", "command": "wc -c f"}}}\n' >small/docs/handbook/results/r.json
printf '# Book\n\n* [A](a.md): one\n' >small/docs/handbook/README.md
chapter() { printf '%s\n' '# A' '' "$@" >small/docs/handbook/a.md; }
refuses() { # text on stderr
    fails_with 1 "$1" "$book" small out && [ ! -e out ]
}
takes() {
    rm -rf taken && "$book" small taken && { [ -z "${1:-}" ] || grep -qF -- "$1" taken/a.html || { cat taken/a.html; return 1; }; }
}

chapter 'It has [5 bytes](results/r.json#n), `7 bytes` of code, x2 MB, 3 ranks and 4/W bytes.'
claim 'numbers with a source, in code, in a name, without a unit are fine' takes '>5 bytes<span class="made-by">wc -c f</span>'
chapter 'Text' 'and' '7 bytes more.'
claim 'a number without a source is refused' refuses 'docs/handbook/a.md:5: "7 bytes" has no source'
chapter 'It has 7' 'bytes.'
claim 'a number whose unit is on the next line, too' refuses 'docs/handbook/a.md:3: "7 bytes" has no source'
chapter '| a | b |' '|---|---|' '| 1 | 12.5 % |'
claim 'and one in a table' refuses 'docs/handbook/a.md:5: "12.5 %" has no source'
chapter 'It has [7 bytes](https://example.org/x).'
claim 'a number that is cited is fine' takes '<a href="https://example.org/x">7 bytes</a>'
chapter '[6 bytes](results/r.json#n)'
claim 'a number that is not the result' refuses 'docs/handbook/a.md:3: the text says "6 bytes", and results/r.json#n says "5 bytes"'
chapter '[5 bytes](results/r.json#m)'
claim 'a result that does not exist' refuses 'docs/handbook/a.md:3: results/r.json has no result "m"'
chapter '[5 bytes](results/q.json#n)'
claim 'a file of results that does not exist' refuses 'docs/handbook/a.md:3: results/q.json cannot be read'
chapter '[5 bytes](results/r.json)'
claim 'a link that names no result' refuses 'docs/handbook/a.md:3: the link results/r.json names no result'
printf '{"results": 3}' >small/docs/handbook/results/bad.json
chapter '[5 bytes](results/bad.json#n)'
claim 'a file of results with other contents' refuses 'docs/handbook/a.md:3: results/bad.json has no object "results"'
printf '{' >small/docs/handbook/results/bad.json
claim 'a file of results that is no JSON' refuses 'docs/handbook/a.md:3: results/bad.json has no object "results": '

chapter '```c src/a.c:2-3' 'int two;' 'int three;' '```'
claim 'an excerpt that equals its source is fine' takes '<figcaption>src/a.c:2-3</figcaption>'
chapter '```c src/a.c:2-3' 'int two;' 'int thre3;' '```'
claim 'an excerpt that differs' refuses 'docs/handbook/a.md:5: line 3 of src/a.c is "int three;", and the excerpt says "int thre3;"'
chapter '```c src/a.c:1-1' 'int one;' 'int two;' '```'
claim 'an excerpt that is too long' refuses 'docs/handbook/a.md:5: the excerpt goes on after line 1 of src/a.c: "int two;"'
chapter '```c src/a.c:2-3' 'int two;' '```'
claim 'an excerpt that is too short' refuses 'docs/handbook/a.md:5: line 3 of src/a.c is "int three;", and the excerpt says ""'
chapter '```c src/a.c:3-4' 'int three;' 'x' '```'
claim 'an excerpt after the end of its file' refuses 'docs/handbook/a.md:3: src/a.c has no line 4'
chapter '```c src/b.c:1-2' 'x' '```'
claim 'an excerpt of no file' refuses 'docs/handbook/a.md:3: an excerpt of src/b.c: '
chapter '```c src/a.c' 'x' '```'
claim 'an excerpt without lines' refuses 'an excerpt is named LANGUAGE PATH:FIRST-LAST, and not "src/a.c"'
chapter '```picture' 'x' '```'
claim 'a picture without a sentence' refuses 'docs/handbook/a.md:3: a picture needs a sentence'
chapter '![x](y.png)'
claim 'an image' refuses 'images are not supported'

drawn=$("$build/lockstep" figure sampler epoch=1 | sed "s/ *$//")
chapter '```figure sampler epoch=1' "$drawn" '```'
claim 'a figure that is what the command prints is fine' takes '<svg xmlns'
claim 'its sentence, its code and its command stand below' grep -qF 'in epoch 0.</span> The samples of an epoch on each rank' taken/a.html
claim 'and its text can be unfolded' grep -qF '<summary>The figure as text</summary>' taken/a.html
chapter '```figure sampler epoch=2' "$drawn" '```'
claim 'a figure of other values' refuses 'docs/handbook/a.md:8: the block is not what `lockstep figure sampler epoch=2` prints'
chapter '```figure sampler epochs=2' '```'
claim 'a figure without such a control' refuses 'docs/handbook/a.md:3: figure sampler epochs=2: '

chapter '## One' '[here](#one), [there](README.md#book), [file](../../src/a.c)'
claim 'links to headings, chapters and files are fine' takes '<a href="#one">here</a>, <a href="index.html#book">there</a>'
chapter '' '[there](b.md)'
claim 'a link to no chapter' refuses 'docs/handbook/a.md:4: link to b.md, which is no chapter of docs/handbook/README.md'
chapter '[here](#two)'
claim 'a link to no heading' refuses 'docs/handbook/a.md:3: link to #two: that chapter has no such heading'
chapter '[file](../../src/b.c)'
claim 'a link to no file' refuses 'docs/handbook/a.md:3: link to ../../src/b.c: the repository has no src/b.c'
chapter '## One' '## One'
claim 'two headings of one name' refuses 'docs/handbook/a.md:4: the heading "One" is there twice'
chapter '# B'
claim 'two titles' refuses 'a chapter has one heading of level 1'
printf 'text\n' >small/docs/handbook/a.md
claim 'no title' refuses 'docs/handbook/a.md:1: a chapter begins with a heading of level 1'

printf '# Book\n\n## Mechanisms\n\n* [A](a.md): one\n' >small/docs/handbook/README.md
chapter '## Problem' '## Synchronization pattern' '## State placement' '## Communication cost' '## Common misunderstandings' '## Say it aloud'
claim 'a mechanism with its sections is fine' takes
chapter '## Problem' '## State placement' '## Synchronization pattern' '## Communication cost' '## Common misunderstandings' '## Say it aloud'
claim 'a mechanism with sections in another order' refuses 'section 2 of a mechanism is "Synchronization pattern", and here it is "State placement"'
chapter '## Problem'
claim 'a mechanism that lacks one' refuses 'section 2 of a mechanism is "Synchronization pattern", and here it is ""'
printf '# Book\n\n* [A](a.md): one\n* [A](a.md): again\n' >small/docs/handbook/README.md
claim 'a chapter that is listed twice' refuses 'docs/handbook/README.md:4: a.md is in the list twice'
printf '# Book\n\n* [B](b.md): none\n' >small/docs/handbook/README.md
claim 'a chapter without a file' refuses 'docs/handbook/b.md: '
printf '# Book\n\n* [A](a.md): one\n' >small/docs/handbook/README.md
chapter '5 <b>bold</b> & "quoted" 1 < 2'
claim 'text cannot be HTML' takes '5 &lt;b&gt;bold&lt;/b&gt; &amp; &quot;quoted&quot; 1 &lt; 2'
printf '# A\n\n7 bytes and 8 bytes\n' >small/docs/handbook/a.md
claim 'all faults are counted' refuses 'book: 2 faults in docs/handbook; nothing was written'
chapter 'x'
claim 'a folder that cannot be written is named' fails_with 1 'small/src/a.c' "$book" small small/src/a.c
claim 'usage' fails_with 64 'usage: book SOURCE OUT' "$book" small
finish
