#!/bin/bash
# test_every_flag.sh -- every flag of every command but train does something that shows, or is refused; what --help marks as
# not implemented is refused. Each row fails where the flag is ignored; a flag without a row fails at the end. The keys of train:
# test_every_key.sh.
#
#   tests/test_every_flag.sh BUILD
. "$(dirname "$0")/harness.sh"
. "$source_dir/tests/harness_rows.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCKSTEP_DEBUG

cmd='' before=() after=()
# The output of the command with more words between `before` and `after`, and its exit status.
output() { timeout -k 5 240 "$lockstep" "$cmd" "${before[@]}" "$@" "${after[@]}" </dev/null 2>&1; echo "exit=$?"; }
matches() { grep -qE -- "$1" <<<"$2" || { echo "no '$1' in: $2"; return 1; }; }
lacks() { ! grep -qE -- "$1" <<<"$2" || { echo "'$1' is in: $2"; return 1; }; }
# The same without more words, into $without: one run for all rows in a sequence that compare with it.
without='' without_of=''
run_without() {
    local of="$PATH ${LOCKSTEP_DEBUG:-} $cmd ${before[*]} -- ${after[*]}"
    [ "$of" = "$without_of" ] || { without=$(output) && without_of=$of; }
}
# flag, pattern, words...: the pattern is there with the words, and not without.
shows() {
    local flag=$1 pattern=$2
    shift 2
    row["$cmd $flag"]=1
    claim "$cmd $flag: $*" matches "$pattern" "$(output "$@")"
    run_without
    claim "$cmd $flag: not so without $*" lacks "$pattern" "$without"
}
# flag, pattern, words...: the other way round.
hides() {
    local flag=$1 pattern=$2
    shift 2
    row["$cmd $flag"]=1
    claim "$cmd $flag: not so with $*" lacks "$pattern" "$(output "$@")"
    run_without
    claim "$cmd $flag: without" matches "$pattern" "$without"
}

# --- run -------------------------------------------------------------------------------------------------------
cmd=run before=() after=(sh -c 'echo "rank $RANK of $WORLD_SIZE at $MASTER_PORT of $TORCHELASTIC_RUN_ID as $ROLE_NAME"
    echo "local $LOCAL_RANK sees $CUDA_VISIBLE_DEVICES"; echo to stderr >&2; grep Cpus_allowed_list /proc/self/status')
unset CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
shows nproc-per-node '^rank 2 of 3 ' --nproc-per-node 3
shows lint '^  group       rank 0 joined no process group' --lint
shows json '^."ranks": 1, "exit_code": 0, "findings": ' --lint --json
shows nnodes 'a job of 2 nodes needs a secret' --nnodes 1:2
shows node-rank '--node-rank 1 of --nnodes 1: expected 0 to 0' --node-rank 1
shows master-addr '^lockstep run: --master-addr has no effect with --nnodes 1' --master-addr 192.0.2.1
shows local-addr '^lockstep run: --local-addr has no effect with --nnodes 1' --local-addr 127.0.0.1
shows master-port ' at 23451 ' --master-port 23451
shows node-timeout '--node-timeout belongs to several machines' --node-timeout 7s
shows secret-file '--secret-file belongs to several machines' --secret-file absent
shows listen 'exit=(77|69)' --listen 0.0.0.0
shows rdzv-backend "expected one of static\|c10d, found 'etcd'" --rdzv-backend etcd
shows rdzv-endpoint ' at 23452 ' --rdzv-endpoint 127.0.0.1:23452
shows rdzv-id ' of job7 ' --rdzv-id job7
shows rdzv-conf 'only join_timeout=SECONDS and last_call_timeout=SECONDS are implemented' --rdzv-conf read_timeout=3
claim 'run rdzv-endpoint: its host' matches '^lockstep run: the host name of --rdzv-endpoint has no effect' "$(output --rdzv-endpoint 192.0.2.1:23452)"
shows max-restarts 'restart   : none: all 1 of --max-restarts are used' --max-restarts 1 sh -c 'exit 3'
shows logs-specs 'error\[unsupported\]: --logs-specs mine: ' --logs-specs mine
without_effect=('monitor-interval 5' 'start-method fork' 'event-log-handler console' 'numa-binding node')
for words in "${without_effect[@]}"; do
    # shellcheck disable=SC2086
    shows "${words% *}" "^lockstep run: --${words% *} has no effect: [a-z]" --$words
    # shellcheck disable=SC2086
    claim "run ${words% *}: the program runs" matches '^rank 0 of 1 ' "$(output --$words)"
    claim "run ${words% *}: said once" test "$(output --nproc-per-node 3 --${words/ /=} | grep -c 'has no effect')" = 1
done
shows signals-to-handle 'cannot be stopped by .SIGKILL.' --signals-to-handle SIGTERM,SIGKILL
shows virtual-local-rank '^local 0 sees 0$' --virtual-local-rank
row['run log-dir']=1
claim 'run log-dir: a folder' matches exit=0 "$(output --log-dir logs)"
claim 'run log-dir: with the logs of the run' test -n "$(ls logs)"
before=(--log-dir redirected)
hides redirects '^rank 0 of 1' --redirects 1
before=(--log-dir teed)
shows tee '^\[default0\]: ?rank 0 of 1' --tee 1
before=(--log-dir copied --tee 3)
for stream in stdout stderr; do
    row["run duplicate-$stream-filters"]=1
    word=$([ $stream = stdout ] && echo 'rank 0 of' || echo stderr)
    claim "run duplicate-$stream-filters: runs" matches exit=0 "$(output --rdzv-id $stream --duplicate-$stream-filters "$word")"
    claim "run duplicate-$stream-filters: the line" grep -qE "^\[default0\]:.*$word" copied/${stream}_*/attempt_0/filtered_$stream.log
    claim "run duplicate-$stream-filters: no other" test "$(cat copied/${stream}_*/attempt_0/filtered_* | wc -l)" = 1
done
before=(--tee 1)
# shellcheck disable=SC2016
shows log-line-prefix-template '^<0/default>rank 0 of 1 ' --log-line-prefix-template '<${rank}/${role_name}>'
claim 'run log-line-prefix-template: from the environment' matches '^0> rank 0 of 1 ' \
    "$(TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='$rank> ' output)"
before=(--nproc-per-node 2)
hides local-ranks-filter '^rank 0 of 2' --local-ranks-filter 1
shows role ' as trainer$' --role trainer
if [ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ]; then # which OMP_NUM_THREADS is to nproc, too
    all=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)
    shows bind "Cpus_allowed_list:[[:space:]]+$all\$" --bind false
else
    row['run bind']=1
    echo 'skipped: a single core can be bound to nothing else'
fi
before=(--nproc-per-node 2)
program=("${after[@]}") after=(cat /proc/self/personality)
cpus=$(taskset -cp $$ | sed 's/.*: //')
taskset -cp "${cpus%%[,-]*}" $$ >/dev/null # where two ranks share a core
if setarch -R true && [ "$(cat /proc/self/personality)" = 00000000 ]; then
    hides aslr '^00040000$' --aslr always
else
    row['run aslr']=1
    echo 'skipped: addresses are not random here, or have to be'
fi
taskset -cp "$cpus" $$ >/dev/null
after=("${program[@]}")
before=(--nnodes 2)
shows standalone '--standalone is for one machine, and --nnodes is 2' --standalone
mkdir bin
printf '#!/bin/sh\necho "python $*"\n' >bin/python3
chmod +x bin/python3
before=()
path=$PATH PATH=$tmp/bin:$PATH
shows module '^python -u -m sh' --module
shows run-path '^python -u sh' --run-path
PATH=$path
printf '#!/bin/sh\necho "no python"\n' >script.py
chmod +x script.py
program=("${after[@]}") after=(./script.py)
shows no-python '^no python$' --no-python
after=("${program[@]}")
shows prefix-rank '^before sh -c' --prefix-rank 0 'echo before'
row['run events']=1
claim 'run events: runs' matches exit=0 "$(output --events events)"
claim 'run events: are kept' grep -q '"event":"rank_exit"' events
after=(sh -c 'kill -STOP $$')
row['run timeout']=1
claim 'run timeout: a stopped rank is reported' matches 'exit=83' "$(output --timeout 300ms)"
# rank 1 takes longer to end than it has by itself
before=(--nproc-per-node 2)
after=(sh -c 'if [ $RANK = 0 ]; then until [ -e set ]; do sleep 0.01; done; rm set; exit 3; fi
    trap "sleep 1; echo ended in order; exit 0" TERM; : >set; while :; do sleep 0.01; done')
shows shutdown-timeout '^ended in order$' --shutdown-timeout 60
claim 'run shutdown-timeout: from the environment' matches '^ended in order$' "$(TORCH_ELASTIC_SHUTDOWN_TIMEOUT=60 output)"
before=() after=()
shows print-completion '^complete -F _lockstep lockstep' --print-completion bash
shows help '^usage: lockstep run' --help
of_torchrun='nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts monitor-interval
    start-method event-log-handler role module no-python run-path log-dir redirects tee log-line-prefix-template
    local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr
    logs-specs numa-binding signals-to-handle shutdown-timeout virtual-local-rank print-completion'
for flag in $of_torchrun; do
    claim "torchrun's --${flag//-/_} is known" lacks 'unknown option' "$(output "--${flag//-/_}")"
done
for flag in h m r t; do claim "torchrun's -$flag is known" lacks 'unknown option' "$(output -$flag)"; done

# --- bench -----------------------------------------------------------------------------------------------------
cmd=bench before=(all_reduce -b 64 -e 192 -n 2) after=()
shows ranks '^#  Rank +2 ' --ranks 3
shows minbytes '^ +32 ' -b 32
shows maxbytes '^ +256 ' -e 256
shows stepbytes '^ +192 ' -i 64
shows stepfactor '^ +192 ' -f 3
shows agg_iters 'agg iters: 2' -m 2
shows warmup_iters 'warmup iters: 3 ' -w 3
row['bench run_cycles']=1
claim 'bench run_cycles: rows again' test "$(output -N 3 | grep -c '^ *64 ')" = 3
hides check '^ +64 .* 0$' -c 0
shows op ' max ' -o max
shows datatype ' double ' -d double
shows blocking 'Blocking Enabled' -z 1
shows average '--average: expected an integer in 0..3' --average 4
shows per_iter_timing 'i_cv%' -I 1
row['bench timeout']=1
# a stopped rank: the run ends with the silence that was given, not with the 30 s of the default
silent() {
    local i pid=
    timeout -k 5 60 "$lockstep" bench all_reduce -b 64 -e 64 -g 2 -n 1000000 -N 1000 --timeout 700ms >stopped 2>&1 &
    for ((i = 0; i < 2000; i++)); do
        pid=$(sed -nE 's/^#  Rank +1 .* Pid +([0-9]+) .*/\1/p' stopped) && [ -n "$pid" ] && break
        sleep 0.01
    done
    kill -STOP "$pid"
    wait $!
    # the waiting rank says it, or the launcher, who sees that rank 1 is stopped: in whatever collective that was, or between two
    [ $? = 83 ] && grep -qE '(rank 0 waited|silent for) [0-9]\.[0-9] s( in |, )' stopped || { cat stopped; return 1; }
}
claim 'bench timeout: a silence of 700 ms ends the run' silent
shows report_timestamps '20[0-9][0-9]-[0-9][0-9]-' -S 1
shows unalign '--unalign: expected an integer in 0..1024' --unalign 1025
shows transport '\[tcp\]' --transport tcp
shows backend 'exit=[1-9]' --backend mpi
shows algo 'by ring' --algo ring
shows touch 'Touch Enabled' --touch 1
shows private 'private memory' -M
shows place 'N/A' --place in
shows count '^# count' --count
shows fit 'fit (of|out|in)|no fit' --fit
shows csv '^program,collective' --csv
shows json '^"results": ' --json # more, of all commands: test_json.sh
shows threads 'nThread 2 ' --threads
shows explain 'costs from' --explain
shows help '^usage: lockstep bench' --help
shows trials '--trials: expected an integer in 1..99' --trials 100
for name in output_file per_iter_skip; do row["bench $name"]=1; done
output -I 1 -K 1 -J rows.json >/dev/null
claim 'bench output_file: the rows' grep -q '"collective": "all_reduce"' rows.json
claim 'bench per_iter_skip: one is left out' grep -q '"skipped_iterations": 1' rows.json
before=(all_reduce -b 64 -e 64 --csv)
shows iters ',64,7,' -n 7
before+=(-n 2)
hides trial_time ',64,2,' --trial_time 2ms
before=(broadcast -g 3 -b 64 -e 64 -n 2)
shows root 'none +2 ' -r 2
before=(all_gather -g 3 -b 48 -e 48 -n 2 --transport tcp --count)
shows counts 'rank +0 ' --counts uneven
before=(sendrecv -g 3 -b 64 -e 64 -n 2)
shows ping_pong '--ping_pong is between 2 ranks, here are 3' --ping_pong
before=(all_reduce -b 64K -e 64K -n 2 --transport tcp --count --place in)
shows wire ' 32768 ' --wire bf16
before=(all_reduce -b 64 -e 64 -n 2 --transport tcp)
export LOCKSTEP_DEBUG=info
shows checksums 'frames without checksums' --checksums false
unset LOCKSTEP_DEBUG

# --- coll, doctor, calibrate --------------------------------------------------------------------------------------
cmd=coll before=() after=()
shows coll 'broadcast' --coll broadcast
shows algo 'direct' --algo direct
shows ranks 'over 6 ranks|for 6 ranks|of 6' -n 6
shows rank 'rank 2' --rank 2
before=(--coll broadcast --algo chain -n 3 --rank 0)
row['coll root']=1
claim 'coll root: another root, other steps' test "$(output)" != "$(output --root 1)"
before=(--algo ring -n 3)
for name in 'segments 2' 'lanes 2 --segments 2' 'json' 'dot'; do
    # shellcheck disable=SC2086
    claim "coll $name: other steps" test "$(output)" != "$(output --$name)"
    row["coll ${name%% *}"]=1
done
before=(--algo ring -n 3 --segments 2)
claim 'coll lanes: side by side' test "$(output)" != "$(output --lanes 2)"
before=(--algo hierarchical -n 4)
row['coll hosts']=1
claim 'coll hosts: other steps' test "$(output)" != "$(output --hosts 2)"
before=(--coll all_to_all --algo bruck)
shows uneven 'exit=[1-9]' --uneven
before=()
shows list '^halving_doubling +all_reduce' --list
shows file 'exit=[1-9]' --file absent
shows help '^usage: lockstep coll' --help

cmd=plan before=(llama3-8b) after=()
shows seq 'sequence length 4096$' --seq 4096
shows json '"flops_causal": ' --json
before=(llama3-8b --world 16 --batch 64)
shows topology '^llama3-8b: .* 16 ranks on h100-8 ' --topology h100-8
before=(llama3-8b --topology h100-8 --batch 64)
shows world ' 8 ranks on h100-8 ' --world 8
shows units ' 64 ranks on h100-8 ' --units 8
before=(llama3-8b --topology h100-8 --world 16)
shows batch ', batch 64 x 8192 tokens, ' --batch 64
before=(llama3-8b --topology h100-8 --world 16 --batch 64)
shows memory '^memory of a rank by stage, GB \(limit 40\)' --memory 40GB
shows objective '^plan: .* recompute full$' --objective memory
hides top '^   3 ' --top 2
shows dtype ', 8-bit products$' --dtype fp8
shows schedules 'pp 2 .*; recomputation ' --schedules gpipe
shows tp '^plan: tp 4 ' --tp 4
shows pp '^plan: tp [0-9]+ pp 2 ' --pp 2
shows cp '^plan: tp [0-9]+ pp [0-9]+ cp 4 ' --cp 4
shows micro-batch '^plan: .*, micro-batch 2, ' --micro-batch 2
shows zero '^plan: .*, ZeRO 3, ' --zero 3
shows want-mfu '^the smallest cluster with an MFU of 50 % or more: 4 ranks' --want-mfu 0.5
shows want-step '^the smallest cluster with a step of ' --want-step 10
shows rank-by '^ranked by FLOPs alone ' --rank-by flops
shows sensitivity '^10 % more of a resource gives$' --sensitivity
shows exhaustive ' do not fit, 0 left out ' --exhaustive
shows write '^recipe: own.yaml$' --write own.yaml
row['plan threads']=1 # they change no byte: tests/test_plan_search.c
claim 'plan threads: is taken' matches 'exit=0' "$(output --threads 1)"
claim 'plan threads: is checked' matches 'exit=64' "$(output --threads 2000)"
before=(mixtral-8x7b --topology h100-8 --world 16 --batch 64)
shows ep '^plan: .* ep 2 ' --ep 2
before=(llama3-8b)
for words in 'layers 16' 'hidden 2048' 'heads 16' 'kv-heads 4' 'head-dim 64' 'ffn 8192' 'vocab 32000'; do
    # shellcheck disable=SC2086
    hides "${words% *}" '^llama3-8b: 8,030,261,248 parameters' --$words
done
before=(--layers 4 --hidden 256 --heads 4 --vocab 1000)
shows gated ': 4,708,608 parameters' --gated
hides experts '^sizes of the command line: ([0-9,]+) parameters, \1 of them per token' --experts 4 --topk 1 --expert-ffn 512
before=(--layers 4 --hidden 256 --heads 4 --vocab 1000 --expert-ffn 512 --experts 4)
shows topk '^sizes of the command line: ([0-9,]+) parameters, \1 of them per token' --topk 4
before=(--layers 4 --hidden 256 --heads 4 --vocab 1000 --topk 1 --experts 4)
shows expert-ffn '^sizes of the command line: ' --expert-ffn 512
before=()
shows list '^deepseek-v3$' --list
shows score '^ptdp-0001,tflops_per_gpu,' --score "$source_dir/tests/golden/plan_rows.csv"
shows check 'absent/predicted.json: there is no such file, so nothing was predicted: train with --predict' --check absent # more: test_plan_check.sh
shows help '^usage: lockstep plan' --help

gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cmd=sim before=(llama-tiny --data.name whale.txt --data.tokenizer byte --model.vocab_size 258 --parallel.tp 2 -n 4) after=()
shows topology '^h100-8: 4 ranks ' --topology h100-8
before+=(--topology h100-8)
shows ranks '^h100-8: 2 ranks ' --ranks 2
shows tflops '^a device computes 100 TFLOP/s' --tflops 100
shows memory-rate 'its memory moves 1000 GB/s$' --memory-rate 1000
plain=$(output | grep '^step ')
for words in 'jitter 0.2' 'slow 1:3'; do
    row["sim ${words% *}"]=1
    # shellcheck disable=SC2086
    claim "sim ${words% *}: another step" lacks "$plain" "$(output --$words)"
    # shellcheck disable=SC2086
    claim "sim ${words% *}: is taken" matches 'exit=0' "$(output --$words)"
done
shows json '"step_s": ' --json
shows fail 'only messages between pipeline stages meet a link that fails' --fail node:0@0-1000 # what it does: test_cmd_sim.sh
row['sim timeline']=1 row['sim timeline-ranks']=1
claim 'sim timeline: a file of two ranks' matches 'exit=0' "$(output --timeline step.json --timeline-ranks 2)"
claim 'sim timeline-ranks: two' test "$(grep -o '"pid": *[0-9]*' step.json | sort -u | wc -l)" = 2
before+=(--jitter 0.2)
row['sim jitter-seed']=1
claim 'sim jitter-seed: another step' lacks "$(output | grep '^step ')" "$(output --jitter-seed 9)"
before=(llama-tiny --data.name whale.txt --data.tokenizer byte --model.vocab_size 258 --parallel.tp 2 --topology h100-8)
shows units '^h100-8: 16 ranks ' --units 2
before=()
shows help '^usage: lockstep sim' --help

cmd=pipeline before=() after=()
shows schedule '^zb-h1: 4 ranks' --schedule zb-h1
shows stages '^1f1b: 3 ranks' --stages 3
shows micro '5 micro-batches' --micro 5
before=(--schedule interleaved)
shows chunks '3 chunks each' --chunks 3
before=(-p 2 -m 2)
shows forward '^step 13 ms' --forward 2.3333333333,2.3333333333
shows backward-input '^step 12 ms' --backward-input 2
shows backward-weight '^step 12 ms' --backward-weight 2
shows transfer '^step 9\.5 ms' --transfer 0.25
shows alive 'and there is memory for 1' --alive 1
claim 'pipeline columns: a narrower drawing' test "$(output --columns 40 | awk 'length > 40' | wc -l)" -lt "$(output | awk 'length > 40' | wc -l)"
row['pipeline columns']=1
before=()
shows file 'exit=[1-9]' --file absent
before=(-p 2 -m 2)
shows csv '^1F0,1B0,1F1,1B1$' --csv
before=(-p 2 -m 2 --csv)
shows messages '^1RECV_F0,1F0,1B0,1SEND_B0' --messages
before=(-p 2 -m 2)
row['pipeline svg']=1
claim 'pipeline svg: a file' bash -c "'$lockstep' pipeline --svg drawn.svg >/dev/null && grep -q '^<svg' drawn.svg"
shows compare '^dualpipe-v +2' --compare
shows json '"bubble": 0\.33' --json
before=()
shows list '^zb-v +2 +two chunks' --list
shows help '^usage: lockstep pipeline' --help

cmd=explain before=(zero --model.dims 8,4,2 --data.name synthetic)
shows ranks '^W = 2 ranks' -n 2
hides stages '^zero.stage.* 3$' --stages 0,1
shows json '"world_size": 4' --json
shows help '^usage: lockstep explain .zero.dp.tp.sp.cp.ep.pp.3d.roofline. CONFIG' --help
printf 'model: { dims: [8, 4, 2] }\ndata: { name: synthetic }\n' >mlp.yaml
before=(mlp.yaml -n 2)
shows rank '^groups of rank 1$' --rank 1
shows nodes '^  node 1 ' --nodes 2
shows compare '^nothing differs' --compare mlp.yaml
before=(roofline mlp.yaml -n 2 --topology ethernet-2)
shows topology '^h100-8, 2 ranks' --topology h100-8
shows tflops '^peaks of a rank: 25 TFLOP/s, memory' --tflops 25
shows memory-rate 'TFLOP/s, memory 17 GB/s' --memory-rate 17
before=()

cmd=doctor
shows json '"cores_usable": [1-9]' --json
shows help '^usage: lockstep doctor' --help
row['doctor peak']=1
claim 'doctor peak: is kept' matches exit=0 "$(LOCKSTEP_PEAK=$tmp/peak.json output --peak)"
claim 'doctor peak: in the file' grep -q gflops peak.json

cmd=calibrate
shows help '^usage: lockstep calibrate' --help
row['calibrate show']=1
shows json '^."from": ' --show --json
claim 'calibrate show: measures nothing' matches '^from ' "$(LOCKSTEP_CALIBRATION=none output --show)"
row['calibrate output']=1
claim 'calibrate output: keeps it there' matches "kept in costs.json" "$(output --output costs.json)"
claim 'calibrate output: as a file' test -s costs.json

# --- text, models -----------------------------------------------------------------------------------------------
for ((i = 0; i < 20; i++)); do echo "A rank waits for $((i * 7919 % 97)) others."; done >text.txt
cmd=data before=(prepare text.txt) after=(--out a)
prepared() { # flag, words of one, words of another: other files
    row["data $1"]=1
    # shellcheck disable=SC2086
    after=(--out "one-$1") && output $2 >/dev/null
    # shellcheck disable=SC2086
    after=(--out "other-$1") && output $3 >/dev/null
    claim "data $1: $2 and $3 give other files" test -e "one-$1/train.bin" -a -e "other-$1/train.bin"
    claim "data $1: not the same" test "$(cat "one-$1"/*.bin | cksum)" != "$(cat "other-$1"/*.bin | cksum)"
}
prepared tokenizer '--tokenizer byte' '--tokenizer char'
prepared format '--tokenizer char' '--tokenizer char --format nanogpt'
prepared val '--tokenizer byte --val 0.1' '--tokenizer byte --val 0'
row['data out']=1 # above
printf 'ab\377cd and more text\n' >broken.txt
before=(prepare broken.txt --tokenizer byte --out lossy) after=()
shows lossy 'exit=0' --lossy
before=(prepare text.txt --tokenizer byte --out one-val --val 0.3)
row['data force']=1
claim 'data force: nothing is replaced without' matches 'exit=[1-9]' "$(output)"
claim 'data force: replaces' matches exit=0 "$(output --force)"
before=(prepare sotu --out sotu --tokenizer byte)
offline
shows from 'absent' --from absent
before=(fetch)
shows list '^fashion-mnist +70,000 labelled images' --list
before=(show one-tokenizer/train.bin)
shows json '"tokens": [1-9][0-9]*, "bits": 16' --json
row['data tokens']=1
claim 'data tokens: fewer' test "$(output --tokens 2)" != "$(output)"
before=()
shows help '^usage: lockstep data' --help

cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 1, n_head: 2, d_model: 8, seq_len: 16 }
data: { path: other-tokenizer }
train: { steps: 2, global_batch: 4 }
log: { tensorboard: false }
YAML
"$lockstep" train gpt.yaml --run.dir run >out 2>&1 || cat out
cmd=generate before=(run --tokens 12) after=()
differs() { # flag, words: another text, both without a failure
    local flag=$1 one other
    shift
    row["$cmd $flag"]=1
    one=$(output 2>/dev/null | grep -v tokens/s) other=$(output "$@" | grep -v tokens/s)
    claim "$cmd $flag: $* gives another text" test "$one" != "$other"
    claim "$cmd $flag: and succeeds" matches exit=0 "$other"
}
differs prompt --prompt rank
echo 'A rank' >prompt.txt
differs file --file prompt.txt
differs tokens --tokens 3
differs temperature --temperature 0
differs top-k --top-k 1
differs top-p --top-p 0.01
differs seed --seed 3
before=(run --tokens 12 --prompt rank)
differs echo --echo false
shows json '^."path": "run/checkpoints' --json
shows tokenizer 'exit=[1-9]' --tokenizer absent
before=(run --tokens 4000 --seed 1)
differs stop-at-eot --stop-at-eot
shows help '^usage: lockstep generate' --help

cmd=export before=(run) after=()
row['export out']=1
claim 'export out: a folder' matches exit=0 "$(output --out hf)"
claim 'export out: with its files' test -e hf/model.safetensors
for name in 'dtype bf16' 'max-shard-size 1KiB'; do
    row["export ${name%% *}"]=1
    # shellcheck disable=SC2086
    claim "export $name" matches exit=0 "$(output --out "hf-${name%% *}" --$name)"
    claim "export $name: other files" test "$(cd hf && cksum ./*.safetensors)" != "$(cd "hf-${name%% *}" && cksum ./*.safetensors)"
done
shows help '^usage: lockstep export' --help
cmd=import before=(hf)
row['import out']=1
claim 'import out: a file' matches exit=0 "$(output --out x.safetensors)"
claim 'import out: is there' test -e x.safetensors
before=(hf-dtype --out x.safetensors)
row['import force']=1
claim 'import force: nothing is replaced without' matches 'exit=[1-9]' "$(output)"
claim 'import force: replaces' matches exit=0 "$(output --force)"
before=()
shows help '^usage: lockstep import' --help
cmd=ckpt before=(ls run)
shows json '^\{' --json
before=(merge "$(echo run/checkpoints/step-* | cut -d' ' -f1)")
row['ckpt out']=1
claim 'ckpt out: a folder' matches exit=0 "$(output --out one)"
claim 'ckpt out: is there' test -e one/model.safetensors
claim 'ckpt out: is asked for' matches 'exit=64' "$(output)"
before=(reshard "$(echo run/checkpoints/step-* | cut -d' ' -f1)" two)
row['ckpt ranks']=1
claim 'ckpt ranks: so many files' matches 'exit=0' "$(output --ranks 2)"
claim 'ckpt ranks: are there' test "$(ls two/sharded | wc -l)" = 2
claim 'ckpt ranks: is asked for' matches 'exit=64' "$(output)"
before=()
shows help '^usage: lockstep ckpt' --help

cmd=tune
shows help '^usage: lockstep tune' --help
before=(buckets)
shows nproc-per-node '\(2 ranks over' -n 2 --steps 0 "$source_dir/recipes/exercise-mlp.yaml"
shows json '^."ranks": 2, "transport": "shm"' --json -n 2 --steps 0 "$source_dir/recipes/exercise-mlp.yaml"
shows steps ' - +-' --steps 0 -n 2 "$source_dir/recipes/exercise-mlp.yaml"
before=()

cmd=figure before=(sampler)
row['figure text']=1
claim 'figure text: is the default, and the only form' test "$(output)" = "$(output --text)"
claim 'figure text: not beside another' matches 'exit=64' "$(output --text --json)"
shows svg '^<svg ' --svg
shows json '^\{"figure": "sampler"' --json
before=()
shows help '^usage: lockstep figure' --help

cmd=help before=(coll)
shows scdoc '^lockstep-coll\(1\)' --scdoc
before=()
shows help '^usage: lockstep help' --help

# --- every flag has a row; what is marked is refused ----------------------------------------------------------------
for cmd in run bench calibrate tune coll pipeline plan sim data ckpt explain export figure import generate doctor help; do claim "every flag of $cmd has a row" complete $cmd; done
# --- lab ---------------------------------------------------------------------------------------------------------------
cmd=lab before=(1) after=()
shows commands '^01\.9 starter: ' --commands
before=(1 --commands)
hides claim '^01\.5 small: ' --claim 9
shows control '^01\.9 control starter: ' --control
before=(1 --claim 9)
shows rows '\[R[0-9]+' --rows
shows json '^\{"lockstep_lab": 1, ' --json
row['lab yes']=1 # without a terminal nothing is asked anyway; with one: test_labs.sh
claim 'lab yes: is taken' matches '^1 of 1 claims hold' "$(output --yes)"
before=()
shows sheet '--sheet belongs to' --sheet # what it does: test_lab_reader.sh
shows seed '--seed belongs to' --seed 3 # what it does: test_lab_exercises.sh
shows help '^usage: lockstep lab' --help
claim 'every flag of lab has a row' complete lab

claim 'secret has none' test -z "$(flags_of secret)"
claim 'nor has completion' test -z "$(flags_of completion)"
commands() { "$lockstep" --help | sed -nE 's/^  ([a-z]+) +[a-z].*/\1/p' | grep -v '^lockstep'; }
claim 'no command is left out' test "$(commands | sort | tr '\n' ' ')" = 'bench calibrate ckpt coll completion data doctor explain export figure generate help import lab pipeline plan run secret sim topo train tune '
marked() { # command, mark: the flags whose row of --help, joined to one line, has it
    "$lockstep" "$1" --help | sed -E ':a;N;$!ba;s/\n {20,}/ /g' |
        sed -nE "s/^(      |  -., )--([a-z-]+) .*\\(${2:-not implemented}.*/\\2/p" | tr '\n' ' '
}
claim 'run marks what it refuses as not implemented' test "$(marked run)" = 'logs-specs '
claim 'and what has no effect' test "$(marked run 'no effect')" = 'monitor-interval start-method event-log-handler numa-binding '
for cmd in bench calibrate tune coll pipeline plan data ckpt explain export figure import generate doctor lab sim; do claim "$cmd marks nothing" test -z "$(marked $cmd)"; done
finish
