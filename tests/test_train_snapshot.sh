#!/bin/bash
# test_train_snapshot.sh -- lockstep train with checkpoint.snapshot: a training that lost a rank or its launcher goes on from
# memory and takes at most one step again, to the very same end; what is damaged, refused or has no room is done without.
#
#   tests/test_train_snapshot.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1 LOCKSTEP_SNAPSHOT_DIR=$tmp/memory
mkdir memory
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 2, n_head: 2, d_model: 16, seq_len: 16, embd_dropout: 0.1, resid_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { steps: 14, global_batch: 24, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01, clip: 0.5, schedule: cosine, warmup: 4 }
log: { tensorboard: false, every: 1 }
checkpoint: { snapshot: 1 }
run: { name: gpt }
YAML
gpt() { # ranks, restarts, more options
    local ranks=$1 restarts=$2
    shift 2
    timeout -k 5 100 "$lockstep" run -n "$ranks" --max-restarts "$restarts" --events events -- "$lockstep" train gpt.yaml "$@" >out 2>err
    code=$?
}
is() { [ "$1" = "$2" ] || { echo "'$1', expected '$2'"; cat err; return 1; }; }
steps_of() { sed -nE 's/^\{"step": ([0-9]+), .*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
all_steps() { seq -s ' ' 1 "$1" | sed 's/$/ /'; }
nothing_stays() { [ -z "$(ls -A memory)" ] || { find memory; return 1; }; }
from_memory() { prints "^resuming step $1 of the snapshot in memory $tmp/memory/lockstep-$(id -u)-[0-9a-f]{16}-0/step-0*$1, saved by ${2:-2} rank"; }
spoil() { printf X | dd of="$1" bs=1 seek=2000 conv=notrunc status=none; } # file

# --- a rank is lost -----------------------------------------------------------------------------------------
gpt 2 0 --checkpoint.snapshot 0 --run.dir plain
plain=$(final)
gpt 2 0 --run.dir whole
claim 'with snapshots: the same end' is "$(final)" "$plain"
claim '... the pauses are told' prints '^snapshots: 13 of [0-9.]+ KiB in memory, [0-9.]+ ms each \(longest [0-9.]+ ms\): [0-9.]+% of the time of the steps$'
claim '... nothing stays in memory' nothing_stays
claim '... the last step is a checkpoint alone' is "$(ls whole/checkpoints)" step-00000014
lost() { # name, ranks, options
    local name=$1 ranks=$2 want
    shift 2
    gpt "$ranks" 0 "$@" --checkpoint.snapshot 0 --run.dir "$name-whole"
    want=$(final)
    rm -f events
    gpt "$ranks" 3 --checkpoint.every 4 --inject "kill@$((ranks - 1)):11" --run.dir "$name" "$@"
    claim "$name: killed in step 11, the job ends well" ends_with 0
    claim "$name: from step 10" from_memory 10 "$ranks"
    claim "$name: the report says so" says "  restart   : as generation 2 from step 10 in memory with $ranks ranks here"
    claim "$name: and names the snapshot" says '  snapshot  : step 10 stays in memory ('
    claim "$name: and the event" grep -q "\"event\":\"gen_start\",\"gen\":2,\"world_size\":$ranks,\"from_step\":10" events
    claim "$name: the same end to the bit" is "$(final)" "$want"
    claim "$name: each step once in its metrics" is "$(steps_of "$name")" "$(all_steps 14)"
    claim "$name: nothing stays in memory" nothing_stays
}
lost stage-0 2
lost stage-3 2 --zero.stage 3
lost tcp 3 --comm.transport tcp --zero.stage 2
lost invariant 2 --train.numerics invariant --train.grain 6
lost async 2 --checkpoint.async true
gpt 2 3 --checkpoint.snapshot 4 --inject kill@0:11 --run.dir fourth
claim 'every fourth step, rank 0 is lost: from step 8' from_memory 8
claim '... the same end' is "$(final)" "$plain"
gpt 2 3 --log.every 1000 --inject kill@0:11 --run.dir quiet
claim 'a snapshot is not ahead of the metrics' is "$(steps_of quiet)" "$(all_steps 14)"
gpt 2:3 3 --inject kill@1:11 --run.dir fewer
claim 'MIN:MAX: two ranks go on from the snapshot of three' from_memory 10 3
claim '... and end well' ends_with 0
timeout -k 5 60 "$lockstep" train gpt.yaml --nproc-per-node 2 --ranks-as threads --run.dir threads >out 2>err
code=$?
claim 'ranks that are threads: the same end' is "$(final)" "$plain"
claim '... with snapshots' prints '^snapshots: 13 of '

# --- the launcher is lost -------------------------------------------------------------------------------------
rm -f events
"$lockstep" run -n 2 --events events -- "$lockstep" train gpt.yaml --run.dir launcher --inject hang@1:12 >out 2>err &
pid=$!
until_true grep -q '"step":11}' events
until_true eval 'ls -d memory/*/step-00000011 >/dev/null 2>&1'
kill -KILL $pid
wait $pid 2>/dev/null
gpt 2 0 --run.dir launcher --checkpoint.resume auto
claim 'the launcher is killed in step 12: from step 11 by hand' from_memory 11
claim '... the same end' is "$(final)" "$plain"
claim '... each step once' is "$(steps_of launcher)" "$(all_steps 14)"
claim '... nothing stays' nothing_stays
left() { # name, options: a run that ends with a rank killed in step 11
    local name=$1
    shift
    rm -rf memory/* "$name"
    gpt 2 0 --inject kill@1:11 --run.dir "$name" --checkpoint.every 4 "$@"
}
resumed() { gpt "${ranks:-2}" 0 --run.dir "$1" --checkpoint.resume auto --checkpoint.every 4; }
left failed
claim 'without restarts the report says that it stays' says '  snapshot  : step 10 stays in memory: the same command with --checkpoint.resume auto goes on from it ('
claim '... the two newest do' is "$(cd memory/* && echo step*)" 'step-00000009 step-00000010'
claim '... for its user alone' is "$(stat -c %a memory/*)" 700
ranks=3 resumed failed
claim 'another number of ranks' from_memory 10
claim '... ends well' ends_with 0
claim '... nothing stays' nothing_stays
left unset
gpt 2 0 --run.dir unset --checkpoint.resume auto --checkpoint.snapshot 0
claim 'the key is not given again: from memory all the same' from_memory 10
claim '... nothing stays' nothing_stays
left newer
gpt 2 0 --run.dir newer --checkpoint.resume newer/checkpoints/step-00000008
claim 'another folder begins at what is named' ends_with 78
gpt 2 0 --run.dir elsewhere --checkpoint.resume newer
claim 'a PATH is of the disk' prints '^resuming step 8 of newer/checkpoints/step-00000008, saved by 2 ranks'
left stopped
"$lockstep" run -n 2 --events stopping -- "$lockstep" train gpt.yaml --run.dir stopped --checkpoint.resume auto --train.steps 100000 >out 2>err &
pid=$!
until_true grep -qs '"step":12}' stopping
kill -TERM $pid
wait $pid
code=$?
claim 'SIGTERM: a checkpoint' ends_with 75
claim '... and nothing stays' nothing_stays

# --- what is damaged, of another run, or refused --------------------------------------------------------------------
left damaged
spoil memory/*/step-00000010/sharded/shard-00001*
resumed damaged
claim 'the newest is damaged: named' says 'the snapshot of step 10 is skipped'
claim '... the one before is taken' from_memory 9
claim '... the same end' is "$(final)" "$plain"
left destroyed
for f in memory/*/step-*/sharded/shard-00002*; do spoil "$f"; done
resumed destroyed
claim 'both are damaged: the newest checkpoint' prints '^resuming step 8 of destroyed/checkpoints/step-00000008, saved by 2 ranks'
claim '... the same end' is "$(final)" "$plain"
left spoiled
for f in spoiled/checkpoints/step-*/sharded/shard-00002*; do spoil "$f"; done
rm -r memory/*/step-00000010
resumed spoiled
claim 'both checkpoints are damaged: from memory' from_memory 9
left old
rm -r memory/*/step-* && cp -r old/checkpoints/step-00000004 "$(echo memory/*)"
resumed old
claim 'an older snapshot than the newest checkpoint is left alone' prints '^resuming step 8 of old/checkpoints'
left damaged-disk
rm -r memory/*/step-00000010 && mv memory/*/step-00000009 "$(echo memory/*)/x" && cp -r damaged-disk/checkpoints/step-00000004 "$(echo memory/*)" && rm -r memory/*/x
spoil damaged-disk/checkpoints/step-00000008/sharded/shard-00001*
rm -r damaged-disk/checkpoints/step-00000004
resumed damaged-disk
claim 'the only checkpoint is damaged, and an older snapshot is there: from memory' from_memory 4
left again
rm -r again
gpt 2 0 --run.dir again --train.seed 6 --train.steps 3
claim 'the run folder is deleted: another run begins there' ends_with 0
claim '... at its beginning' is "$(steps_of again)" "$(all_steps 3)"
claim '... without what was left' nothing_stays
left again
rm again/run.id
resumed again
claim 'a run without its number has no snapshots' prints '^resuming step 8 of again/checkpoints'
claim '... and removes what is there' nothing_stays
left changed
gpt 2 0 --run.dir changed --checkpoint.resume auto --optim.lr 0.02
claim 'another configuration is refused' ends_with 78
claim '... and named' says 'optim.lr 0.01 -> 0.02'
claim '... the snapshot stays' ls -d memory/*/step-00000010
left linked
name=$(echo memory/*)
rm -r "$name"
mkdir -m 0700 victim && ln -s ../victim "$name"
resumed linked
claim 'a link in its place: refused' says 'is no folder: no snapshot is put there; remove it'
claim '... the run goes on from the disk' prints '^resuming step 8 of linked/checkpoints'
claim '... without snapshots' ends_with 0
claim '... and leaves what it leads to alone' is "$(ls -A victim)" ''
rm "$name"
left public
chmod 755 memory/*
resumed public
claim 'open to others: refused' says 'is open to other users: no snapshot is put there; remove it'
rm -r memory/*

# --- no room ------------------------------------------------------------------------------------------------------
LOCKSTEP_SNAPSHOT_DIR=/proc/none gpt 2 0 --run.dir nowhere
claim 'no place: a warning' says 'snapshot-failed: rank 0: /proc/none/lockstep-'
claim '... that training goes on without' says 'training goes on without snapshots'
claim '... said once' is "$(grep -c snapshot-failed err)" 1
claim '... the same end' is "$(final)" "$plain"
claim 'checkpoint.snapshot is counted' grep -q '"ckpt": {"planned": [1-9]' whole/memory.json
claim '... to the byte' python3 -c "import json; [exit(1) for x in json.load(open('whole/memory.json')).values() if x['planned'] != x['peak']]"
. "$(dirname "$0")/harness_disk.sh"
LD_PRELOAD=$tmp/slow.so FULL=memory/lockstep- AFTER=40 gpt 2 0 --run.dir full --checkpoint.every 8
claim 'no room from some step on: the end is the same' is "$(final)" "$plain"
claim '... one warning' is "$(grep -c 'snapshot-failed: .*No space left on device.*; training goes on; no snapshot is tried until the next checkpoint is on the disk' err)" 1
claim '... nothing stays' nothing_stays
finish
