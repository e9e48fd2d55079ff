#!/bin/bash
# test_restart.sh -- lockstep run --max-restarts: a training that lost a rank goes on as a new generation from its newest
# checkpoint, to the very same end; when it does not; and --nproc-per-node MIN:MAX.
#
#   tests/test_restart.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16, embd_dropout: 0.1, resid_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { steps: 14, global_batch: 24, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01, clip: 0.5, schedule: cosine, warmup: 4 }
log: { tensorboard: false, every: 1 }
run: { name: gpt }
YAML
job() { # flags of the launcher -- program
    timeout -k 5 100 "$lockstep" run "$@" >out 2>err
    code=$?
}
gpt() { # ranks, restarts, more options
    local ranks=$1 restarts=$2
    shift 2
    job -n "$ranks" --max-restarts "$restarts" --events events -- "$lockstep" train gpt.yaml "$@"
}
generations() { grep -c '"event":"gen_start"' "${1:-events}"; }
is() { [ "$1" = "$2" ] || { echo "'$1', expected '$2'"; return 1; }; }
steps_of() { sed -nE 's/^\{"step": ([0-9]+), .*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
all_steps() { seq -s ' ' 1 "$1" | sed 's/$/ /'; }

# --- a rank is lost -----------------------------------------------------------------------------------------
lost() { # name, ranks, options
    local name=$1 ranks=$2
    shift 2
    rm -rf runs events
    gpt "$ranks" 0 "$@"
    local want
    want=$(final)
    claim "$name: the undisturbed run" ends_with 0
    rm -rf runs events
    gpt "$ranks" 3 --checkpoint.every 4 --inject "kill@$((ranks - 1)):11" "$@"
    claim "$name: killed in step 11, the job ends well" ends_with 0
    claim "$name: the report says from where it goes on" \
        says "  restart   : as generation 2 from step 8 with $ranks rank"
    claim "$name: the same end to the bit" is "$(final)" "$want"
    claim "$name: two generations" is "$(generations)" 2
    claim "$name: one run folder" is "$(ls runs)" gpt
    claim "$name: each step once in its metrics" is "$(steps_of runs/gpt)" "$(all_steps 14)"
}
for stage in 0 1 2 3; do lost "stage $stage" 2 --zero.stage $stage; done
lost 'tcp, three ranks' 3 --comm.transport tcp --zero.stage 1
claim 'a new generation is in the manifest' grep -q '"generation":2' runs/gpt/checkpoints/step-00000014/manifest.json
claim 'and in the events' grep -q '"event":"gen_start","gen":2,"world_size":3,"from_step":8' events
gpt 1 1 --run.dir alone --checkpoint.every 4 --inject kill@0:11
claim 'one rank, too' ends_with 0
timeout -k 5 100 "$lockstep" train gpt.yaml --nproc-per-node 2 --max-restarts 1 --run.dir self --checkpoint.every 4 --inject kill@1:11 >out 2>err
code=$?
claim 'lockstep train --max-restarts' ends_with 0
claim '... goes on as well' prints '^resuming step 8 of self/checkpoints'

# --- before there is a checkpoint -----------------------------------------------------------------------------
rm -rf runs
gpt 2 0
want=$(final)
rm -rf runs
gpt 2 1 --inject kill@0:6
claim 'nothing was saved: it says so' says '  restart   : as generation 2 from the beginning with 2 ranks here, restart 1 of 1'
claim '... begins again' is "$(final)" "$want"
claim '... in its folder' is "$(ls runs)" gpt
claim '... with metrics of its own' is "$(steps_of runs/gpt)" "$(all_steps 14)"
gpt 2 0 --run.dir other --checkpoint.every 4 --train.steps 8
gpt 2 0 --run.dir whole --checkpoint.resume other
want=$(final)
gpt 2 1 --run.dir here --checkpoint.resume other --inject kill@1:10
claim 'a run that began from another goes back there' is "$(final)" "$want"
claim '... in its own folder' test -d here/checkpoints/step-00000014
claim '... from step 8' is "$(steps_of here)" '9 10 11 12 13 14 '
# checkpoint.dir has a newer checkpoint of another run
gpt 2 0 --run.dir first --checkpoint.dir shared
gpt 2 1 --run.dir second --checkpoint.dir shared --checkpoint.every 4 --inject kill@1:6
claim 'checkpoint.dir: its own checkpoint, not a newer one' prints '^resuming step 4 of shared/step-00000004'

# --- when it is not started again ---------------------------------------------------------------------------------
rm -f events
gpt 2 5 --run.dir notanumber --inject nan@1:3
claim 'numerics: not again' ends_with 80
claim '... and why' says '  restart   : none: exit code 80 means that the same would happen again'
claim '... one generation' is "$(generations)" 1
rm -f events
gpt 2 5 --optim.lr no
claim 'usage: not again' ends_with 64
claim '... one generation, too' is "$(generations)" 1
rm -f events
job -n 2 --max-restarts 2 --events events sh -c 'exit 3'
claim 'a program of its own code' ends_with 3
claim '... all restarts' says '  restart   : none: all 2 of --max-restarts are used'
claim '... three generations' is "$(generations)" 3
job -n 2 --max-restarts 9 sh -c 'echo $RANK: $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; [ $TORCHELASTIC_RESTART_COUNT = 2 ] || exit 3'
claim 'a program sees how often' prints '^1: 2 of 9$'
claim '... and ends well in the end' ends_with 0
# rank 1 is killed in each generation, once the run has its folder
cat >dies.sh <<'SH'
[ "$RANK" = 0 ] && exec "$@"
"$@" &
until [ -e idle/metrics.jsonl ]; do sleep 0.01; done
kill -9 $!
wait $!
SH
rm -f events
job -n 2 --max-restarts 9 --events events -- sh dies.sh "$lockstep" train gpt.yaml --train.steps 100000 --run.dir idle
claim 'no progress: it stops' says '  restart   : none: no new checkpoint was saved between 3 failures'
claim '... after three generations' is "$(generations)" 3
# a stop on request
rm -f events
"$lockstep" run -n 2 --max-restarts 9 --events events -- "$lockstep" train gpt.yaml --train.steps 100000 --run.dir stopped --inject kill@1:3 >out 2>err &
pid=$!
until_true grep -q '"gen":2,"rank":0,"step":1}' events
kill -TERM $pid
wait $pid
code=$?
claim 'SIGTERM in the second generation: saved, not again' ends_with 75
claim '... two generations' is "$(generations)" 2

# --- logs of each generation ---------------------------------------------------------------------------------------
job -n 2 --max-restarts 1 --log-dir logs --rdzv-id job -r 3 sh -c 'echo $TORCHELASTIC_RESTART_COUNT; exit 4'
claim 'logs of the first generation' is "$(cat logs/job_*/attempt_0/1/stdout.log)" 0
claim 'logs of the second' is "$(cat logs/job_*/attempt_1/1/stdout.log)" 1
claim 'the failure that was overcome is beside its logs' grep -q '"restart": "as generation 2' logs/job_*/attempt_0/failure.json
claim 'the one that was not is in the folder' grep -q '"restart": "none: all 1' logs/job_*/failure.json

# --- MIN:MAX ---------------------------------------------------------------------------------------------------------
worlds() { sed -nE 's/.*"gen_start".*"world_size":([0-9]+).*/\1/p' events | tr '\n' ' '; }
rm -f events
# the launcher looks ten times a second, so steps have to go on for longer
long=(--train.steps 3000 --checkpoint.every 100 --checkpoint.keep 2 --log.every 1000 --train.eval_every 3000)
gpt 2:4 3 --run.dir fewer "${long[@]}" --inject kill@1:150
claim 'MIN:MAX: it ends well' ends_with 0
claim '... with one rank fewer, and all of them again after a checkpoint' is "$(worlds)" '4 3 4 '
claim '... one that is newer than what it began from' test "$(sed -nE 's/.*"gen":3.*"from_step":([0-9]+).*/\1/p' events)" -ge 200
claim '... and says so' says 'lockstep: generation 3 begins with 4 ranks again: stopping this one'
claim '... each step once' is "$(steps_of fewer)" "$(all_steps 3000)"
loss_at() { sed -nE 's/^\{"step": '"$2"', .*"loss_metrics\/global_avg_loss": ([^,]+),.*/\1/p' "$1/metrics.jsonl"; }
gpt 4 0 --run.dir fewer4 "${long[@]}"
claim '... three ranks go on with the same samples' awk -v a="$(loss_at fewer 160)" -v b="$(loss_at fewer4 160)" \
    'BEGIN { exit !(a && b && a - b < 1e-3 && b - a < 1e-3) }'
rm -f events
gpt 1:4 3 --run.dir odd --train.global_batch 8 "${long[@]}" --inject kill@1:150
claim 'a number that the program refuses is left out' is "$(worlds)" '4 3 2 4 '
claim '... it says so' says '  restart   : generation 3 with 2 ranks: the program refuses 3'
claim '... and it ends well' ends_with 0
rm -f events
gpt 3:4 3 --run.dir none --train.global_batch 8 --train.steps 40 --checkpoint.every 4 --inject kill@1:11
claim 'none between is left: all again' is "$(worlds)" '4 3 4 '

gpt 4 0 --run.dir later --train.steps 8 --checkpoint.every 8
rm -f events
gpt 2:4 3 --run.dir later --checkpoint.resume auto --train.steps 3000 --log.every 1000 --train.eval_every 3000 --inject kill@1:11
claim 'no new checkpoint but the last: it ends with fewer' is "$(worlds)" '4 3 '
claim '... and ends well' ends_with 0
claim '... once' is "$(grep -c '^final step=3000' out)" 1

# --- bad input -----------------------------------------------------------------------------------------------------------
refused() { # text, flags
    local text=$1
    shift
    job "$@" echo
    [ $code = 64 ] && says "$text"
}
claim 'MIN above MAX' refused 'MIN is larger than MAX' -n 3:2 --max-restarts 1
claim 'MIN of no number' refused "--nproc-per-node is 'x:2': expected 1 to" -n x:2 --max-restarts 1
claim 'MIN:MAX of nothing' refused "--nproc-per-node is '2:': expected 1 to" -n 2: --max-restarts 1
claim 'MIN:MAX without restarts' refused '--nproc-per-node 1:2 is for a job that is started again after a failure: give --max-restarts K' -n 1:2
claim 'restarts below 0' refused '--max-restarts' -n 2 --max-restarts -1
timeout 60 "$lockstep" train gpt.yaml --ranks-as threads --nproc-per-node 2 --max-restarts 1 >out 2>err
code=$?
claim 'threads end together' says '--max-restarts: ranks that are threads end together'
job -n 2 -- "$lockstep" train gpt.yaml --max-restarts 2
claim 'a rank starts no rank again' says '--max-restarts is for the launcher'
finish
