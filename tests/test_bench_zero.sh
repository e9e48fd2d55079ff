#!/bin/bash
# test_bench_zero.sh -- bench/zero: what it measures, with a model so small that times mean nothing, and what it says of given rows.
#
#   tests/test_bench_zero.sh BUILD
. "$(dirname "$0")/harness.sh"
small='--n_layer 2 --d_model 64 --n_head 2 --vocab 512 --seq_len 64'
zero() {
    timeout -k 5 60 "$source_dir/bench/zero" "$@" >out 2>err
    code=$?
}
says() { grep -qF -- "$1" "${2:-out}" || { cat out err; return 1; }; }

zero --build "$build" --passes 2 --steps 2 --rows rows.csv -- $small
claim 'it measures: times may miss, nothing else' test $code -le 1
claim 'every contestant has a turn in each pass' test "$(wc -l <rows.csv)" = 13
claim 'and the weights of DDP' test "$(grep -c "ddp's" out)" = 6
rotated() { [ "$(sed -nE 's/^pass ([12]) of 2: (.*[a-z0-9]) +[0-9.]+ ms.*/\1 \2/p' err | sed -n '1p;7p')" = $'1 ddp\n2 ddp, guarded' ] || { cat err; return 1; }; }
claim 'another one begins each pass' rotated
zero --build "$build" --passes 1 --steps 1 --only 'zero 2' --rows rows.csv -- $small
claim 'one of them' test "$(cut -d, -f2 rows.csv | tr '\n' ' ')" = 'contestant ddp zero 2 '

given() { # ms of zero 1, in passes where ddp takes 100, 200 and 300; its digest
    printf 'pass,contestant,ms,pss_mib,digest,steps_ms\n1,ddp,100,10,aa,1\n1,zero 1,%s,5,aa,1\n2,ddp,200,10,aa,1\n2,zero 1,%s,5,%s,1\n3,ddp,300,10,aa,1\n3,zero 1,%s,5,aa,1\n' \
        "$1" "$2" "$4" "$3" >given.csv
    zero --report given.csv
}
given 96 180 297 aa
claim 'the ratio of a pass is to the same pass, the median counts: 0.96, 0.90 and 0.99' says '     0.960     0.900 to  0.990    0.970'
claim 'within the demand: exit 0' test $code = 0
given 98 180 297 aa
claim 'more than the demand: exit 1' test $code = 1
claim 'and it says so' says "ddp's  missed"
given 96 180 297 bb
claim 'other weights than DDP in one pass: exit 1' test $code = 1
claim 'and it says so' says OTHERS
zero --only nobody
claim 'no such contestant' says 'no contestant beside ddp has such a name; there are "ddp, guarded", "zero 1"' err
zero --passes 0
claim 'no pass' says 'expected at least 1 of each' err
sed -i '$d' given.csv
zero --report given.csv
claim 'rows that are not all there' says 'expected a row of ddp and of each other contestant in every pass' err
zero --build "$build" --passes 1 -- --no-such-option
claim 'what bench_gpt refuses is passed on' says 'no-such-option' err
finish
