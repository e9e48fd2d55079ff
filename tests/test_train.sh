#!/bin/bash
# test_train.sh -- lockstep train as a user meets it: what it prints and keeps, that it
# gives the same result in every way of running, and mistakes. Faults: test_train_faults.sh.
#
#   tests/test_train.sh BUILD
. "$(dirname "$0")/harness_train.sh"

# --- what it prints and keeps --------------------------------------------------------------------
train 2 --run.dir run
claim 'a run ends with 0' ends_with 0
claim 'the last line is final' grep -qE '^final step=21 loss=0x1\.[0-9a-f]+p[-+][0-9]+ digest=[0-9a-f]{32}$' <(final)
claim 'R32 the batch is said: ranks, micro-batches, samples' \
    prints '^batch: global 96 = 2 ranks x 1 micro-batch x 48 samples; 21 steps per epoch, 21 steps in this run$'
claim 'each epoch has a line' prints '^epoch=0 test_loss=[0-9]+\.[0-9]{4} test_accuracy=0\.[0-9]{4}$'
claim 'the share of communication is said' prints '^communication: [0-9.]+% of the time exposed, [0-9.]+% hidden'
claim 'off a terminal stderr is empty' test ! -s err
claim 'the run folder has what it should' \
    diff <(printf '%s\n' checkpoints comm.json config.yaml memory.json metrics.jsonl tb) <(ls run)
claim 'the checkpoint is whole' "$lockstep" ckpt verify run/checkpoints/step-00000021/model.safetensors
first=$(final)
digest=${first##*digest=}

metrics_are_whole() { # every line an object with every key, steps from 1, evaluation in the last one only
    python3 - <<'PY'
import json, time
keys = {'step', 'epoch', 'world_size', 'wall_time', 'n_samples_seen', 'loss_metrics/global_avg_loss', 'loss_metrics/global_max_loss', 'grad_norm', 'lr', 'throughput(tps)', 'tflops',
        'mfu(%)', 'time_metrics/end_to_end(s)', 'time_metrics/data_loading(s)', 'memory/max_active(GiB)',
        'memory/max_reserved(GiB)', 'comm/exposed(s)', 'comm/hidden(s)', 'comm/bytes'}
lines = [json.loads(l) for l in open('run/metrics.jsonl')]
now = time.time()
assert [l['step'] for l in lines] == list(range(1, 22)), [l['step'] for l in lines]
for l in lines:
    more = {'eval/loss', 'eval/accuracy'} if l['step'] == 21 else set()
    assert set(l) == keys | more, set(l) ^ (keys | more)
    assert all(isinstance(v, (int, float)) for v in l.values()), l
assert lines[-1]['loss_metrics/global_avg_loss'] < lines[0]['loss_metrics/global_avg_loss']
for l in lines: # PaLM's 6 N a sample, of 50890 parameters, on each of two ranks
    flops = 6 * 50890 * l['throughput(tps)']
    assert abs(l['tflops'] * 1e12 / flops - 1) < 1e-9, l
    assert l['loss_metrics/global_max_loss'] >= l['loss_metrics/global_avg_loss'], l
    assert 0 < l['memory/max_reserved(GiB)'] < 0.1, l
    assert l['epoch'] == 0 and l['n_samples_seen'] == min(96 * l['step'], 2000), l
    assert now - 3600 < l['wall_time'] <= now, l
assert all(a['wall_time'] < b['wall_time'] for a, b in zip(lines, lines[1:]))
peak = [l['tflops'] / l['mfu(%)'] for l in lines]
assert max(peak) < min(peak) * (1 + 1e-9), peak
final = open('out').read().splitlines()[-1].split()[2][5:]
assert float.fromhex(final) == lines[-1]['loss_metrics/global_avg_loss']
# each rank reads half of the other's gradient and writes half of its own sum there
params = 784 * 64 + 64 + 64 * 10 + 10
assert 4 * params <= lines[9]['comm/bytes'] < 4 * params * 1.1, lines[9]['comm/bytes']
PY
}
if python3 -c 'import json' 2>/dev/null; then claim 'metrics.jsonl has every key of every step' metrics_are_whole
else echo 'skipped: there is no python3 to read metrics.jsonl'; fi

# --- the log line -------------------------------------------------------------------------------------
claim 'the peak is named, and where it is kept' prints "^peak: [0-9.]+ GFLOP/s per thread in f32 products, .* \(measured once, cached in $XDG_CACHE_HOME/lockstep/peak.json\)\$"
peak_line() { grep '^peak: ' out; }
claim "a line is torchtitan's, and says more" prints '^step: 20  loss: +[0-9.]+  grad_norm: +[0-9.]+  memory: +[0-9.]+[MG]iB\([0-9.]+%\)  tps: [0-9,]+  [mgt]flops: [0-9.]+  mfu: [0-9.]+%  samples/s: [0-9,]+  exposed: [0-9.]+%  lr: 5.00e-02  ETA: 0:00$'
claim 'step 1, ten more and the last have one' test "$(grep -c ^step: out)" = 12
formatted() { # format, pattern
    train 1 --log.format "$1" --log.every 7 --train.steps 15
    claim "log.format $1" prints "$2"
    claim "log.format $1: at 1, 7, 14 and the last" test "$(grep -cE "$2" out)" = 4
}
formatted torchtitan '^step: +[0-9]+  loss: '
formatted megatron '^ iteration +[0-9]+/      15 \| consumed samples: +[0-9]+ \| .* lm loss: [0-9.E+-]+ \|'
formatted nanogpt '^iter (0|6|13|14): loss [0-9.]+, time [0-9.]+ms, mfu [0-9.]+%$'
formatted llmc '^step +[0-9]+/15 \| loss [0-9.]+ \(\+nanz\)\| norm .*% f32 MFU \| [0-9]+ tok/s$'
no_escapes() { ! grep -q $'\x1b' out; }
claim 'off a terminal there are no colours' no_escapes
LOCKSTEP_TTY_STDOUT=1 train 1
claim 'on one there are' prints $'^\x1b\\[31mstep:  1  \x1b\\[32mloss:'
NO_COLOR=1 LOCKSTEP_TTY_STDOUT=1 train 1
claim 'but not against NO_COLOR' prints '^step:  1  loss:'
echo '{ "lockstep_peak": 1, "host": "'"$(uname -n)"'", "peaks": [{ "dtype": "float", "threads": 1, "gflops_per_thread": 123.5 }] }' >peak.json
OMP_NUM_THREADS=1 LOCKSTEP_PEAK=peak.json train 1
claim 'a kept peak is used, and named' prints '^peak: 123.5 GFLOP/s per thread in f32 products, 1 thread per rank \(measured once, cached in peak.json\)$'
OMP_NUM_THREADS=1 LOCKSTEP_PEAK=peak.json train 2 --explain mfu --run.dir explained
claim '--explain mfu ends with 0' ends_with 0
claim '--explain mfu: the formula' prints '^F = 6 N = 3.053e\+05 operations per sample, forward and backward$'
claim '--explain mfu: the peak' prints '^peak = 2 ranks x 123.5 GFLOP/s = 247.0 GFLOP/s: 123.5 GFLOP/s per thread'
claim '--explain mfu trains nothing' test ! -e explained
LOCKSTEP_PEAK=missing.json train 1
claim 'a peak that is not there is named: 74' says 'missing.json: cannot be opened'
LOCKSTEP_PEAK=none train 1 --run.dir unknown
claim 'without a place for the peak' prints '^peak: not known: there is no folder to keep it in'
no_mfu() { ! grep -q mfu out unknown/metrics.jsonl; }
claim 'MFU is left out of lines and metrics' no_mfu
train 1
claim 'a later run does not measure again' test "$(peak_line)" = "$(train 1; peak_line)"
train 1 --log.tensorboard false --run.dir quiet
claim 'log.tensorboard false: no event file' test ! -e quiet/tb

# --- the same result ---------------------------------------------------------------------------------
train 2 --run.name twice
claim 'the same run gives the same final line' test "$(final)" = "$first"
train 2 --run.name twice
claim 'and again, in a folder of its own' test "$(final)" = "$first" -a -e runs/twice-2/metrics.jsonl
files() { (cd "$1" && find . -type f | sort && find . -type f -exec cksum {} + | sort); }
files run >before
train 2 --run.dir run
claim 'an explicit run folder that is in use is refused: 78' ends_with 78
claim 'in one line, with both ways out' test "$(wc -l <err)/$(grep -cF 'run.dir run exists already and holds checkpoints and more: a run is never overwritten. Give a --run.dir that does not exist or is empty, or leave it out' err)" = 1/1
claim 'before anything is started' test ! -s out
"$lockstep" run --nproc-per-node 2 "$lockstep" train base.yaml --run.dir run >out 2>err
code=$?
claim 'lockstep run: the same' ends_with 78
claim 'lockstep run: it is said' says 'run.dir run exists already'
claim 'the run that is there stays as it was' diff before <(files run)
claim 'and gets no other folder' test ! -e run-2
mkdir made
train 2 --run.dir made
claim 'an empty folder is used' test "$(final)" = "$first" -a -e made/metrics.jsonl
"$lockstep" train run/config.yaml --run.name again >out 2>err
claim 'config.yaml runs and gives the same, ranks included, in a folder of its own' test "$(final)" = "$first" -a -e runs/again/config.yaml
"$lockstep" run --nproc-per-node 2 "$lockstep" train base.yaml >out 2>err
claim 'lockstep run starts it too, in runs/run' test "$(final)" = "$first" -a -e runs/run/config.yaml
for more in '--comm.transport tcp' '--comm.progress thread' '--ddp.overlap false' '--comm.algo ring' '--comm.algo direct' \
    '--ddp.first_bucket 1KiB --ddp.bucket_cap 1KiB' '--ddp.bucket_view true' '--comm.check none --comm.transport tcp'; do
    # shellcheck disable=SC2086
    train 2 $more # two summands have one order: the same bits
    claim "$more gives the same final line" test "$(final)" = "$first"
done
train 1 && cp out one
train 4 --comm.transport tcp && cp out tcp4
train 4 --comm.progress thread && cp out thread4
train 4
close() { # two losses as %a, 1e-5 apart at most: the same sums in another order
    awk -v a="$(printf %.17g "$1")" -v b="$(printf %.17g "$2")" 'BEGIN { d = (a - b) / b; print a, b; exit !(d < 1e-5 && d > -1e-5) }'
}
memory() { sed -nE 's/^memory per rank: (parameters [^,]*), gradients [^,]*(, optimizer [^,]*)?.*/\1\2/p' "$1"; }
claim 'a rank of 4 holds all parameters and optimizer state, as one of 1 does' test "$(memory one)" = "$(memory out)" -a -n "$(memory one)"
claim '1 rank gives the loss of 2' close "$(loss one)" "${first#*loss=}"
claim '4 ranks give the loss of 2' close "$(loss)" "${first#*loss=}"
claim 'on 4 ranks the progress thread changes no bit' test "$(final)" = "$(tail -1 thread4)"
claim 'on 4 ranks tcp gives the loss' close "$(loss)" "$(loss tcp4)"
train 2 --train.micro_batch 12
claim 'R32 with accumulation, too' prints '^batch: global 96 = 2 ranks x 4 micro-batches x 12 samples; '
claim 'accumulating over 4 micro-batches gives the loss' close "$(loss)" "${first#*loss=}"
for optim in adam adamw; do
    train 2 --optim.name $optim --optim.lr 1e-3 && cp out a
    train 2 --optim.name $optim --optim.lr 1e-3
    claim "$optim, twice, gives the same final line" test "$(final)" = "$(tail -1 a)"
done

train 2 --optim.schedule cosine --optim.warmup 4 --optim.min_lr_ratio 0.1 --optim.grad_clip 0.5 --run.dir scheduled
clipped=$(final)
rates() { # of each step: to the peak in 4, and down along half a cosine
    python3 - <<'PY'
import json, math
lr = [json.loads(l)['lr'] for l in open('scheduled/metrics.jsonl')]
want = [0.05 * ((s + 1) / 4 if s < 4 else 0.1 + 0.45 * (1 + math.cos(math.pi * (s - 4) / 17))) for s in range(21)]
assert len(lr) == 21 and all(abs(a - b) < 1e-15 for a, b in zip(lr, want)), lr
PY
}
if python3 -c 'import json' 2>/dev/null; then claim 'metrics.jsonl has the rate of each step of a schedule' rates; fi
train 2 --optim.schedule cosine --optim.warmup 4 --optim.min_lr_ratio 0.1 --optim.clip 0.5 --comm.transport tcp
claim 'clipped and scheduled over tcp: the same final line' test "$(final)" = "$clipped" -a "$clipped" != "$first"

# --- evaluation, configuration ----------------------------------------------------------------------------
model=run/checkpoints/step-00000021/model.safetensors
epoch=$(sed -n 's/^epoch=0 //p' one)
train 2 # its epoch line is that of the checkpoint
epoch=$(sed -n 's/^epoch=0 //p' out)
train 2 --eval-only --model.load $model --run.dir none
claim '--eval-only prints what the run printed' test "$(cat out)" = "$epoch"
claim 'and leaves no folder' test ! -e none
train 1 --eval-only --model.load $model
claim '--eval-only on one rank agrees' test "$(cat out)" = "$epoch"
train 2 --train.epochs 0 --model.load $model
claim 'no step trains nothing' test "$(final)" = "final step=0 loss=0x0p+0 digest=$digest"
train 2 --print-config --optim.lr 0.5
claim '--print-config: a value and its flag' prints '^  lr: 0.5 +# flag'
claim '--print-config: a value and its line in the file' prints '^  epochs: 1 +# base.yaml:3'
claim '--print-config: a default' prints '^  eps: 1.0e-08 +# default'
train 2 --ddp.first_bucket 64KiB --ddp.bucket_cap 256KiB --dump-buckets --model.dims 784,256,128,10
dump() { sed -n 's/^  bucket/bucket/p' out; }
claim '--dump-buckets: one bucket, then two in the order gradients arrived' diff - <(dump) <<'DUMP'
bucket 0: 0.weight, 0.bias, 2.weight, 2.bias, 4.weight, 4.bias: 940584 bytes
bucket 0: 4.bias, 4.weight, 2.bias, 2.weight: 136744 bytes
bucket 1: 0.bias, 0.weight: 803840 bytes
DUMP
train 2 --train.steps 5 --checkpoint.every 1 --checkpoint.keep 3 --run.dir kept --checkpoint.dir elsewhere/deep
claim 'the newest checkpoints are kept, where they are wanted' \
    diff <(printf 'step-0000000%d\n' 3 4 5) <(ls elsewhere/deep)

# --- the trace ------------------------------------------------------------------------------------------------
trace_is_right() { # in steps 3 to 8
    python3 - traced/trace/trace.json <<'PY'
import json, sys
x = [e for e in json.load(open(sys.argv[1]))['traceEvents'] if e['ph'] == 'X']
overlaps = []
for rank in 0, 1:
    mine = [e for e in x if e['pid'] == rank]
    assert {e['args']['step'] for e in mine} == set(range(3, 9))
    for step in range(3, 9):
        now = [e for e in mine if e['args']['step'] == step]
        span = lambda e: (e['ts'], e['ts'] + e['dur'])
        coll = sorted((e for e in now if e['cat'] == 'comm' and e['name'].startswith('bucket')), key=lambda e: e['ts'])
        optim = [e for e in now if e['name'] == 'optimizer step']
        early = [e for e in now if e['cat'] == 'backward' and e['name'] == 'linear 784x256']
        assert [e['name'] for e in coll] == ['bucket 0', 'bucket 1'] and len(optim) == 1 and len(early) == 1
        for e in now:
            if e['cat'] in ('comm', 'wait'):
                assert span(e)[1] <= span(optim[0])[0], 'in the optimizer step: ' + e['name']
        assert span(coll[0])[0] < span(early[0])[0], 'bucket 0 starts after the first layer'
        if (rank, step) == (1, 5):
            assert [e['dur'] >= 200000 for e in now if e['name'] == 'step'] == [True], 'rank 1 did not rest for 0.2 s'
        if span(coll[0])[1] > span(early[0])[0]:
            overlaps.append((rank, step))
print('overlap on rank, in step:', overlaps)
sys.exit((0, 5) not in overlaps)
PY
}
# Rank 1 comes 0.2 s late to the backward of step 5: rank 0 has to compute its earlier layers while bucket 0 waits for it.
trace() {
    rm -rf traced
    train 2 --ddp.first_bucket 64KiB --ddp.bucket_cap 256KiB --model.dims 784,256,128,10 --trace.steps 3:8 --train.steps 10 \
        --train.global_batch 128 --run.dir traced --inject slow@1:5 "$@"
    trace_is_right
}
if python3 -c 'import json' 2>/dev/null; then
    claim 'a bucket is reduced while earlier layers compute, none in the optimizer step' trace
    claim 'and so it is by the progress thread' trace --comm.progress thread
else
    echo 'skipped: there is no python3 to read the trace'
fi

long_trace() { # 64 micro-batches per rank and step: more events than a box has room for itself
    rm -rf long_trace
    train 2 --trace.steps "$1" --train.steps 20 --train.global_batch 128 --train.micro_batch 1 --log.every 20 --run.dir long_trace "${@:2}"
}
all_is_there() { # every micro-batch of every step, with as many operations as the others
    long_trace 1:20 --train.eval_every 5 && ! says 'lacks its first events' && ! says 'events a rank' &&
        python3 -c '
import collections, json
events = json.load(open("long_trace/trace/trace.json"))["traceEvents"]
ops = collections.Counter((e["pid"], e["args"]["step"], e["args"].get("micro_batch", 0))
                          for e in events if e.get("cat") == "backward")
assert set(ops) == {(r, s, m) for r in range(2) for s in range(1, 21)
                    for m in range(40 if s == 16 else 64)}, len(ops) # the 2,000 samples end with 80 in step 16
assert len(set(ops.values())) == 1, set(ops.values())'
}
warns() { # and keeps what it can: the steps that it said would fit
    rm -rf long_trace
    train 2 --trace.steps 1:1000 --train.steps 1000 --train.global_batch 128 --train.micro_batch 1 --log.every 500 --model.dims 784,4,10 \
        --train.eval_every 1000 --run.dir long_trace || return
    says 'trace.steps 1:1000 needs up to' && says 'per rank, but at most 131072 are kept' &&
        says 'the trace of steps 1 to 1000 lacks its first events on 2 of 2 ranks, beginning with rank 0'
}
if python3 -c 'import json' 2>/dev/null; then
    claim 'a trace of many micro-batches is whole' all_is_there
else
    echo 'skipped: there is no python3 to read the trace'
fi
claim 'and one that is longer than any ring says so, before and after' warns

# --- mistakes: the right code, a sentence that says what to do -----------------------------------------------------
mistake() { # code, text, arguments...
    local want=$1 text=$2
    shift 2
    train 2 "$@"
    ends_with "$want" && says "$text"
}
once() { # the same, and found before any rank starts: one line
    mistake "$@" && [ "$(wc -l <err)" = 1 ]
}
claim 'an unknown flag' once 64 "unknown option '--optim.lrr'; did you mean '--optim.lr'?" --optim.lrr 3
claim 'a value out of range' once 64 '--optim.lr: expected a number in 0..' --optim.lr -1
claim 'a batch that ranks cannot share' once 78 'the nearest that fit are 96 and 98' --train.global_batch 97
claim 'a batch smaller than the ranks' once 78 'the nearest that fits is 2' --train.global_batch 1
claim 'a micro-batch that does not divide' once 78 'which does not divide the 48 samples of a rank' --train.micro_batch 7
claim 'no file to evaluate' once 78 '--eval-only needs model.load' --eval-only
claim 'an unknown algorithm' once 78 'lockstep coll --list' --comm.algo nonsense
claim 'an unknown fault' once 64 'expected kill, stop, hang, nan, mismatch, slow, slow-input, diverge, overflow or diverge-experts' --inject trip@1:2
claim 'a fault on a rank that is not there' once 64 'with RANK below 2' --inject kill@2:2
claim 'what is not implemented' once 78 'comm.backend nccl is not implemented' --comm.backend nccl
claim 'a trace of steps that never come' mistake 78 'trace.steps begins at 30, but the run has 21 steps' --trace.steps 30
claim 'a folder of data that is not there' mistake 74 'data.path names the folder of the data' --data.path nowhere
claim 'a run folder that cannot be made' mistake 74 'making the folder base.yaml: Not a directory' --run.dir base.yaml/run
claim 'a checkpoint folder that cannot be made, before the first step' \
    mistake 74 'preparing checkpoint.dir base.yaml/kept: making the folder base.yaml: Not a directory' \
    --checkpoint.dir base.yaml/kept
claim 'and no step was made' test "$(grep -c ^step: out)" = 0
claim 'a checkpoint of other sizes' once 78 "model.dims is 784,32,10 (flag), but $model says 784,64,10" \
    --model.dims 784,32,10 --model.load $model
claim 'data of another shape' mistake 78 'the data has 784 features' --model.dims 100,32,10
claim 'a learning rate that blows up' mistake 80 'the loss of rank 0 in step 2 is not finite' --optim.lr 1e30

cp -r "$data" cut && truncate -s 100000 cut/train-images-idx3-ubyte.gz
claim 'a file of data that is cut off' mistake 65 'train-images-idx3-ubyte.gz: byte 100000: the gzip stream is cut off' --data.path cut
cp -r "$data" short && gunzip short/train-images-idx3-ubyte.gz && truncate -s 100000 short/train-images-idx3-ubyte
claim 'and one that is not packed' mistake 65 '99984 bytes of elements, its sizes say 1568000' --data.path short

with() { # code, text, what the file holds
    printf "$3" >wrong.yaml
    fails_with "$1" "$2" "$lockstep" train wrong.yaml
}
claim 'an unknown key' with 78 "wrong.yaml:2:3: unknown key 'train.globalbatch'; did you mean 'train.global_batch'?" \
    'train:\n  globalbatch: 3\n'
claim 'what is not YAML' with 65 'wrong.yaml' 'train: {\n'
claim 'bytes that are no text' with 65 'not YAML' 'a\001b'
claim 'a text in place of sections' with 65 'expected sections and keys' 'hello'
claim 'a file that is not there' fails_with 74 'nofile.yaml: No such file, and no recipe of that name; recipes: ' "$lockstep" train nofile.yaml
claim 'nothing at all' fails_with 64 'which run?' "$lockstep" train
finish
