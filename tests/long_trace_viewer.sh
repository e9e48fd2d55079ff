#!/bin/bash
# long_trace_viewer.sh -- a trace opens in a viewer that is not ours: npm's speedscope in a
# headless Chromium. Skipped where there is no browser or no registry.
#
#   tests/long_trace_viewer.sh BUILD
. "$(dirname "$0")/harness_train.sh"

for program in chromium npm base64; do
    command -v $program >/dev/null || { echo "skipped: there is no $program; scripts/setup --viewer installs it"; finish; }
done
npm pack --silent speedscope >/dev/null 2>&1 && tar xzf speedscope-*.tgz && [ -e package/dist/release/index.html ] ||
    { echo 'skipped: npm cannot fetch speedscope (no network?)'; finish; }

# Opens the trace $1, for at most $2 s, as speedscope's own command does; leaves the page in page.html and what the page logged in
# console. The page is taken when nothing is left to do in it, 15 s of its own time at most.
view() {
    { printf 'speedscope.loadFileFromBase64("trace.json", "'; base64 -w0 "$1"; printf '")\n'; } >profile.js
    timeout -k 5 "$2" chromium --headless --no-sandbox --user-data-dir="$tmp/chromium" --enable-unsafe-swiftshader \
        --enable-logging=stderr --virtual-time-budget=15000 --dump-dom \
        "file://$tmp/package/dist/release/index.html#localProfilePath=$tmp/profile.js" >page.html 2>browser.log
    grep -a 'CONSOLE' browser.log >console
    [ -s page.html ]
}
# Lanes that have slices: each is a profile of its own in speedscope.
lanes() { grep -o '"ph":"X","pid":[0-9]*,"tid":[0-9]*' "$1" | sort -u | wc -l; }
opened() {
    grep -q '<title>trace.json - speedscope</title>' page.html || { cat console; return 1; }
    grep -q "rank 0 (pid 0), compute (tid 1) <span[^>]*>(1/$(lanes "$1"))" page.html || { grep -o 'rank 0[^/]*/[0-9]*)' page.html; return 1; }
}
quiet() { # no error, no warning about slices that cross
    ! grep -aiE 'error|warn|mismatch|unmatched|Tried to' console || return 1
}

for more in '--comm.progress inline' '--comm.progress thread' '--comm.transport tcp --train.micro_batch 32'; do
    rm -rf traced
    # shellcheck disable=SC2086
    train 2 --ddp.first_bucket 64KiB --ddp.bucket_cap 256KiB --model.dims 784,256,128,10 --trace.steps 3:4 --train.steps 6 \
        --train.global_batch 256 --run.dir traced $more
    claim "$more: a trace is written" test -s traced/trace/trace.json
    claim "$more: the browser runs" view traced/trace/trace.json 120
    claim "$more: speedscope shows every lane" opened traced/trace/trace.json
    claim "$more: and has nothing to say about it" quiet
done

# The check itself: a trace that is none is not opened.
echo '{"traceEvents": 3}' >broken.json
view broken.json 15 # it asks what to do, and nobody answers
not_opened() { ! grep -q '<title>trace.json - speedscope</title>' page.html; }
claim 'what is no trace is not opened' not_opened
finish
