#!/bin/bash
# test_train_zero_faults.sh -- a rank that is killed (SIGKILL) with every stage of ZeRO, at the beginning of a step and at any
# moment: the report names rank, step and collective, and nothing is left.
#
#   tests/test_train_zero_faults.sh BUILD        LOCKSTEP_TEST_LONG=1: more repetitions
. "$(dirname "$0")/harness_faults.sh"
times=3
[ -z "${LOCKSTEP_TEST_LONG:-}" ] || times=20
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >base.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 32, seq_len: 32 }
data: { name: whale.txt, tokenizer: byte }
train: { global_batch: 12, micro_batch: 2 }
optim: { name: adamw, lr: 3e-3, clip: 0.5 }
YAML
ranks=3

names_the_collective() { # the first line of the report: what rank 1 was in, or computing after
    grep -m1 '^lockstep: ' err | grep -qE "was killed by signal 9 \(SIGKILL\), (in|computing after) $1" ||
        { cat err; return 1; }
}
survivors_end() { # every other rank ended by itself, as a consequence
    local r all=
    for ((r = 0; r < ranks; r++)); do [ $r = 1 ] || all+="${all:+; }rank $r ended with exit code 82"; done
    grep -qx "  consequences: $all" err || { cat err; return 1; }
}

# Starts an endless run over $1 with more options, and kills rank 1 from outside at any moment after step 3.
pid_of_rank_1() {
    local child
    for child in $(pgrep -P "$1"); do
        tr '\0' '\n' <"/proc/$child/environ" 2>/dev/null | grep -qx RANK=1 && echo "$child"
    done
}
kill_at_any_moment() { # transport, seconds, options...
    local transport=$1 wait=$2 launcher victim
    shift 2
    litter | sort >before
    rm -rf out err "$tmp/run"
    "$lockstep" train base.yaml --nproc-per-node $ranks --comm.transport "$transport" --run.dir "$tmp/run" --train.epochs 1000 \
        --log.every 1 "$@" >out 2>err &
    launcher=$!
    until_true grep -qs '^step:  3 ' out
    victim=$(pid_of_rank_1 $launcher)
    sleep "$wait" # no state to wait for: any moment is to be right
    kill -KILL "${victim:-$launcher}"
    wait $launcher 2>/dev/null
    code=$?
    [ -n "$victim" ]
}
step_is_known() { # the step that rank 0 has written last, or one of its neighbours
    local last said
    last=$(sed -nE 's/^step: +([0-9]+) .*/\1/p' out | tail -1)
    said=$(grep -m1 '^lockstep: ' err | sed -nE 's/.*error\[rank-died\] gen=1 step=([0-9]+) rank=1 .*/\1/p')
    [ -n "$said" ] && [ "$said" -ge $((last - 1)) ] && [ "$said" -le $((last + 2)) ] || { echo "step $said, the last line has $last"; cat err; return 1; }
}

collectives='(all_reduce|reduce_scatter|all_gather|barrier)'
groups='(world|buckets 0-2|values 0-2)(:|$)' # over tcp some have a second group
of="#[0-9]+( \\([^)]*\\))? of"
killed_under() { # what is tested, transport, options...
    local how=$1 transport=$2
    shift 2
    fault $transport kill@1:5 "$@"
    claim "$how, killed: exit 82" ends_with 82
    claim "$how, killed: rank and step come first" first_line_blames rank-died
    claim "$how, killed: the collective is named" names_the_collective "$collectives $of $groups"
    claim "$how, killed: the other ranks end as a consequence" survivors_end
    claim "$how, killed: nothing is left" nothing_left
    for ((i = 1; i <= times; i++)); do
        claim "$how, killed at any moment, $i: a rank 1 was there" kill_at_any_moment $transport 0.0$((i * 3)) "$@"
        claim "$how, killed at any moment, $i: exit 82" ends_with 82
        claim "$how, killed at any moment, $i: the step is the one at hand" step_is_known
        claim "$how, killed at any moment, $i: the collective is named" names_the_collective "$collectives $of $groups"
        claim "$how, killed at any moment, $i: nothing is left" nothing_left
    done
}

for transport in shm tcp; do
    for stage in '0' '1' '2' '3' '3 --zero.copy rank'; do
        [ "$transport $stage" != 'tcp 3' ] || continue # one copy needs memory that all ranks map (test_train_zero.sh)
        killed_under "$transport, stage $stage" $transport --zero.stage $stage
    done
done

# Two sets of two ranks: rank 1 shares a set with rank 0, and its shards with rank 3.
ranks=4
two_sets='--zero.hsdp 2 --train.micro_batch 1'
groups='(world|shards 0, 1|copies 1, 3|values 0, 1)(:|$)'
killed_under 'shm, stage 3, hsdp 2' shm --zero.stage 3 $two_sets
killed_under 'tcp, stage 3 --zero.copy rank, hsdp 2' tcp --zero.stage 3 --zero.copy rank $two_sets
finish
