#!/bin/bash
# test_figure.sh -- `lockstep figure` as a user meets it: the three forms of every figure, the list, and refusals.
#
#   tests/test_figure.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
figure() { "$lockstep" figure "$@"; }
parses() { python3 -c "$1" <"$2"; }

claim 'without a name it lists figures' has_line 'schedule: A collective, round by round' figure
claim 'with their controls' has_line '  cap_kib    25600   ddp.bucket_cap (KiB): 1 to 1048576' figure
claim 'and presets' has_line '  preset=no-set-epoch' figure
claim 'the example of --help works' has_line 'round 2 of 3' figure schedule algo=tree coll=broadcast ranks=8 step=2
claim 'it says so' has_line 'lockstep figure schedule algo=tree coll=broadcast ranks=8 step=2' figure --help
for name in schedule winner buckets sampler ledger pipeline; do
    figure $name >$name.txt
    figure $name --svg >$name.svg
    figure $name --json >$name.json
    claim "$name: lines fit a terminal, but for the sentence and the table" \
        test "$(sed -n '4,/^$/p' $name.txt | awk 'length > 78' | wc -l)" = 0
    claim "$name: plain ASCII" test -z "$(LC_ALL=C grep -P '[^\x00-\x7F]' $name.txt $name.svg)"
    claim "$name: the picture is XML" parses 'import sys, xml.dom.minidom as d; d.parseString(sys.stdin.read())' $name.svg
    claim "$name: nothing of it is elsewhere" test -z "$(grep -oE '(href|src)=|@import|https?://[^w]' $name.svg)"
    claim "$name: one object of JSON" parses "import sys, json; j = json.load(sys.stdin); assert j['figure'] == '$name' and j['table']['rows']" $name.json
    claim "$name: all three say the same" test "$(sed -n 3p $name.txt)" = "$(python3 -c 'import sys, json; print(json.load(sys.stdin)["sentence"])' <$name.json)"
done
claim 'all figures as JSON' parses 'import sys, json; assert len(json.load(sys.stdin)["figures"]) == 6' <(figure list --json)
claim 'flags may come first' test "$(figure --json sampler n=3)" = "$(figure sampler n=3 --json)"

claim 'many ranks: messages of a round are cut' has_line '  and 56 more' figure schedule ranks=64 step=3
claim 'and a chunk is one letter' has_line '  rank  0 #+++++++++++++++++++++++++++++++++++++++++++++++++++++++++++++##' figure schedule ranks=64 step=65
claim 'an unknown figure' fails_with 64 "no figure named 'shedule'; did you mean 'schedule'?" figure shedule
claim 'a value out of bounds' fails_with 64 'ranks=65: expected a whole number from 1 to 64' figure schedule ranks=65
claim 'values that do not go together' fails_with 64 'algo=chain does not do all_reduce' figure schedule algo=chain
claim 'two forms' fails_with 64 'expected one of --text, --svg and --json' figure sampler --svg --json
claim 'a full disk' fails_with 74 'standard output' bash -c "'$lockstep' figure >/dev/full"
finish
