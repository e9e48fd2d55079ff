#!/bin/bash
# test_pipeline.sh -- `lockstep pipeline` as a user meets it: the drawing, files in and out, the comparison, and refusals.
#
#   tests/test_pipeline.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
pipeline() { "$lockstep" pipeline "$@"; }

cat >want <<'END'
1f1b: 2 ranks, 3 micro-batches
rank 0 FFFFFF......BBBBBBFFFBBBBBB...BBBBBB
       0  1        0     2  1        2
       |warm-up----|steady--|cool-down-----
rank 1 ...FFFBBBBBBFFFBBBBBBFFFBBBBBB......
          0  0     1  1     2  2
       |warm-|steady-----------|cool-down--
F forward, B backward, . idle (bubble); numbers: micro-batches; a column is 0.333 ms
END
claim 'the drawing of 1F1B, by hand' diff <(pipeline -p 2 -m 3 --columns 100 | head -8) want
claim 'the example of --help works' has_line 'zb-h1: 4 ranks, 8 micro-batches' pipeline --schedule zb-h1 --stages 4 --micro 8 --svg zb-h1.svg
claim 'its SVG is XML' python3 -c 'import sys, xml.dom.minidom as d; d.parse("zb-h1.svg")'
claim 'nothing of it is elsewhere' test -z "$(grep -oE '(href|src)=|@import|https?://[^w]' zb-h1.svg)"
claim 'an action each' test "$(grep -c 'class="c-forward box"' zb-h1.svg)" = 32
for schedule in $(pipeline --list | awk 'NR > 1 { print $1 }'); do
    for p in 1 2 5; do
        pipeline --schedule "$schedule" -p $p -m 7 --columns 40 >drawn
        claim "$schedule, $p ranks: 40 columns" test -z "$(awk 'length > 40' drawn)"
        claim "$schedule, $p ranks: plain ASCII" test -z "$(LC_ALL=C grep -P '[^\x00-\x7F]' drawn)"
        claim "$schedule, $p ranks: proved" grep -q '^proved: every micro-batch goes' drawn
        for messages in '' --messages; do
            pipeline --schedule "$schedule" -p $p -m 7 --csv $messages >"$schedule.csv"
            claim "$schedule, $p ranks: its file is the same schedule $messages" \
                diff <(pipeline --file "$schedule.csv" | tail -n +2) <(pipeline --schedule "$schedule" -p $p -m 7 | tail -n +2)
        done
    done
done
claim 'a file of PyTorch' has_line 'step 25.5 ms, bubble 5.9 %: ranks idle 6 of 4 x 25.5 ms' \
    pipeline --file "$source_dir/tests/data/pipe/pytorch_dualpipe_v_4_2_8.csv"
claim 'FSDP in it is said to be left out' fails_with 0 '6 actions of FSDP' pipeline --file "$source_dir/tests/data/pipe/pytorch_gpipe_3_1_4.csv"
claim 'uneven stages' has_line 'step 15.5 ms, bubble 41.9 %: ranks idle 13 of 2 x 15.5 ms' \
    pipeline -p 2 -m 2 --forward 1,3 --backward-input 1,2 --backward-weight 0.5,1.5

# R124: equal bubbles with equally many micro-batches; what 1F1B saves is memory.
pipeline --compare -p 4 -m 16 >compared
claim 'GPipe and 1F1B have the same bubble' test "$(awk '$1 == "gpipe" || $1 == "1f1b" { print $4 }' compared | sort -u)" = 15.8
claim 'memory is what differs' test "$(awk '$1 == "gpipe" { g = $6 } $1 == "1f1b" { print g, $6 }' compared)" = '16 4'
claim 'and the bubble at equal memory' test "$(awk '$1 == "gpipe" || $1 == "1f1b" { print $(NF - 2), $(NF - 1) }' compared | tr '\n' ' ')" = '4: 42.9 16: 15.8 '

printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' >deadlock.csv
claim 'a file that deadlocks' fails_with 65 'deadlock, with 2 messages stored per edge: rank 0, action 1 (0B0), waits for 1B0 of rank 1' \
    pipeline --file deadlock.csv
printf '0F0,0F1,0B0,0B1\n1F0,1B0\n' >skips.csv
claim 'a file that skips a micro-batch' fails_with 65 'rank 1 ends after 2 actions: in stage 1, 1 of 2 micro-batches' pipeline --file skips.csv
claim 'and which action is missing' fails_with 65 '1 backward, and 1 have their gradients of weights: expected the forward of micro-batch 1, 1F1, as well' \
    pipeline --file skips.csv
printf '0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n' >ends.csv
claim 'a file without a backward' fails_with 65 'expected the backward of micro-batch 1, 0B1, as well' pipeline --file ends.csv
printf '0F0,0I0\n1F0,1B0\n' >half.csv
claim 'a file without the half of a backward' fails_with 65 'expected the backward of the weights of micro-batch 0, 0W0, as well' pipeline --file half.csv
claim 'a file that needs more memory' fails_with 65 '3 are alive with it, and there is memory for 2' pipeline --file 1f1b.csv --alive 2
claim 'a schedule that needs more memory' fails_with 78 '--alive 3: pipeline schedule: rank 0, action 3, the forward of micro-batch 3 (0F3)' \
    pipeline --alive 3
claim 'no such schedule' fails_with 64 'gpipe|1f1b|interleaved|zb-h1|zb-h2|zb-v|dualpipe-v' pipeline --schedule 2f2b
claim 'chunks that it does not have' fails_with 78 'pipeline schedule zb-v with 3 chunks of the model per rank: expected 2' \
    pipeline --schedule zb-v --chunks 3
claim 'a number of times' fails_with 64 '--forward has 3 times: expected one, or 4, one per stage' pipeline --forward 1,2,3
claim 'a file says what schedules have' fails_with 64 '--file and --micro: a file says that itself' pipeline --file 1f1b.csv --micro 3
claim 'messages without a file' fails_with 64 '--messages belongs to --csv' pipeline --messages
claim 'two forms' fails_with 64 '--csv and --json: leave one of them out' pipeline --csv --json
claim 'one schedule to compare' fails_with 64 '--compare and --schedule: it shows all schedules' pipeline --compare --schedule gpipe
claim 'times per stage to compare' fails_with 64 '--compare with times per stage' pipeline --compare --forward 1,2,3,4
claim 'too many to compare' fails_with 64 'expected at most 4096' pipeline --compare --micro 4097
claim 'a list that is too long' fails_with 78 'expected at most 5461 micro-batches' pipeline -p 4096 -m 1000000
claim 'stray words' fails_with 64 "unexpected '1f1b'" pipeline 1f1b
claim 'a full disk' fails_with 74 'standard output' bash -c "'$lockstep' pipeline >/dev/full"
finish
