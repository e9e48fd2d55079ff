#!/bin/bash
# long_resume_matrix.sh -- a run that was saved by 1, 2, 3, 4 or 8 ranks at ZeRO stage 0, 1, 2 or 3 goes on with each of these
# numbers at each stage, over an epoch's end: the losses are those of the uninterrupted run within 1e-6, and to the bit with
# train.numerics invariant (powers of two).
#
#   tests/long_resume_matrix.sh BUILD
. "$(dirname "$0")/harness_train.sh"
export OMP_NUM_THREADS=1
small_text 60
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 1, n_head: 2, d_model: 16, seq_len: 16, embd_dropout: 0.1 }
data: { path: $tmp/tokens }
train: { steps: 12, global_batch: 24, seq_len: 12, seed: 5 }
optim: { name: adamw, lr: 0.01, clip: 0.5, warmup: 4 }
log: { tensorboard: false }
checkpoint: { keep: 2 }
YAML
run() { # folder, ranks, stage, options
    local dir=$1 ranks=$2 stage=$3
    shift 3
    timeout -k 5 100 "$lockstep" train gpt.yaml --nproc-per-node "$ranks" --zero.stage "$stage" --run.dir "$dir" "$@" >"$dir.out" 2>"$dir.err" ||
        { cat "$dir.err"; return 1; }
}
losses() { sed -nE 's/^\{"step": ([0-9]+), .*"loss_metrics\/global_avg_loss": ([^,]+),.*/\1 \2/p' "$1/metrics.jsonl"; }
near() { # two folders: as many steps, and the largest difference
    paste <(losses "$1") <(losses "$2") | awk '
        $1 != $3 { wrong = 1 }
        { d = $2 - $4; if (d < 0) d = -d; if (d > most) most = d; n++ }
        END { if (wrong || n != 12 || most > 1e-6) { print n " steps, the largest difference is " most; exit 1 } }'
}
same() { diff <(losses "$1") <(losses "$2") && [ "$(tail -1 "$1.out")" = "$(tail -1 "$2.out")" ]; }

resumed() { # comparison, from (ranks stage), ranks, stage, options
    local how=$1 from=$2 ranks=$3 stage=$4
    shift 4
    rm -rf on
    cp -r "$from" on
    run on "$ranks" "$stage" --checkpoint.resume auto "$@" && "$how" whole on
}
matrix() { # comparison, the numbers of ranks, options: from every one at every stage to every one
    local how=$1 sizes=$2 from ranks stage wrong=0 n=0
    shift 2
    rm -rf whole from-*
    run whole 1 0 "$@" || return 1
    for ranks in $sizes; do
        for stage in 0 1 2 3; do # an epoch ends after step 9
            run "from-$ranks-$stage" "$ranks" "$stage" --checkpoint.every 8 --train.steps 8 "$@" || return 1
        done
    done
    for from in from-*/; do
        for ranks in $sizes; do
            for stage in 0 1 2 3; do
                n=$((n + 1))
                resumed "$how" "${from%/}" "$ranks" "$stage" "$@" || { echo "${from%/} to $ranks ranks, stage $stage"; wrong=$((wrong + 1)); }
            done
        done
    done
    echo "$((n - wrong)) of $n"
    [ $wrong = 0 ]
}
claim 'every layout to every layout: within 1e-6' matrix near '1 2 3 4 8'
claim 'train.numerics invariant: to the bit' matrix same '1 2 4 8' --train.numerics invariant --train.grain 3
finish
