#!/bin/bash
# test_run_lint.sh -- lockstep run --lint: the exercise has no findings, and each step that a conversion to several ranks
# forgets is found by the calls that its ranks make.
#
#   tests/test_run_lint.sh BUILD
. "$(dirname "$0")/harness_train.sh"
lint() { # program, arguments...
    timeout -k 5 60 "$lockstep" run -n 2 --lint "$@" >out 2>err
    code=$?
}
finds() { # "rule ranks" of each finding, and the exit status
    local want=$1
    ends_with "${2:-1}" && python3 - "$want" <<'PY'
import json, sys
x = json.loads(open('out').read().splitlines()[-1])
found = '; '.join(f['rule'] + ' ' + ','.join(str(r) for r in f['ranks']) for f in x['findings'])
assert x['ranks'] == 2 and all(f['text'] for f in x['findings']), x
assert found == sys.argv[1], found
PY
}
python3 -c 'import json' || { echo 'python3 is needed to read JSON'; exit 1; }
ddp=$build/examples/train_ddp single=$build/examples/train_single
few=(--epochs 2 --port 0 --out m.safetensors)

# --- programs as they are
lint "$ddp" "${few[@]}"
claim 'the exercise has nothing to find' ends_with 0
claim 'and that is said' prints '^lint: 0 findings in the calls of 2 ranks$'
claim 'after what the program prints' prints '^Model saved from rank 0.$'
lint --json "$ddp" "${few[@]}"
claim 'in JSON, too' finds '' 0
claim 'nothing is left behind' test -z "$(ls "${TMPDIR:-/tmp}" | grep lockstep-lint)"
lint --json "$single" --epochs 1 --out s.safetensors
claim 'a program for one rank' finds 'group 0,1; wrapper 0,1; sampler 0,1; save 1'
lint "$single" --epochs 1 --out s.safetensors
claim 'for people' prints '^  wrapper     ranks 0, 1 made an optimizer, but wrapped no parameters: .* call ls_ddp_create$'
claim 'of one rank alone' prints '^  save        rank 1 wrote the model to a file'
lint --json "$ddp" "${few[@]}" --no-sampler
claim 'no sampler' finds 'sampler 0,1'
lint --json "$lockstep" train exercise-mlp --train.steps 80 --run.dir run
claim 'a training of our own has nothing to find' finds '' 0
lint --json -- true
claim 'a program that calls nothing' finds 'group 0,1'
lint --json sh -c 'exit 3'
claim 'the status of a program that fails is its own' finds 'group 0,1' 3
timeout 60 "$lockstep" run -n 2 "$ddp" "${few[@]}" >out 2>err
claim 'without --lint nobody looks' test -z "$(grep lint out err)"

# --- the exercise without one of its steps
without() { # name, sed script
    sed -e "$2" "$source_dir/examples/train_ddp.c" >"$1.c"
    ! cmp -s "$1.c" "$source_dir/examples/train_ddp.c" || { echo "the sed script of $1 changes nothing"; return 1; }
    "${CC:-cc}" -std=gnu17 -w -I"$source_dir/include" -o "$1" "$1.c" "$build/liblockstep.so" -Wl,-rpath,"$build" || return 1
    lint --json "./$1" "${few[@]}"
}
if nm -D "$build/liblockstep.so" | grep -q __asan_init; then
    echo 'skipped: programs that are compiled here do not have the sanitizer of the library'
else
    without no_epoch 's/st = ls_sampler_set_epoch(sampler, (uint64_t)epoch);//'
    claim 'no set_epoch' finds 'set_epoch 0,1'
    without all_save 's/if (st == LS_OK && rank == 0) st = ls_ckpt_save/if (st == LS_OK) st = ls_ckpt_save/'
    claim 'every rank saves' finds 'save 1'
    without by_hand 's/if ((st = ls_backward(tape, loss)) < 0 ||/if ((st = ls_backward(tape, loss)) < 0 || (st = ls_all_reduce(ls_world_group(job.world), NULL, model->params.item[1].grad.data, 128, LS_F32, LS_AVG)) < 0 ||/'
    claim 'gradients are summed by hand' finds 'all_reduce 0,1'
    without some_sum 's/if ((st = ls_backward(tape, loss)) < 0 ||/if ((st = ls_backward(tape, loss)) < 0 || (st = ls_all_reduce(ls_world_group(job.world), NULL, \&mean, 1, LS_F64, LS_AVG)) < 0 ||/'
    claim 'another sum is none of its business' finds '' 0
    without no_wrapper 's/ls_params_bind(&model->params, model->arena, NULL)/ls_params_bind(\&model->params, model->arena, model->arena)/; s/if (st == LS_OK) st = ls_ddp_create.*//; s/if ((st = ls_ddp_begin_forward(ddp, tape, true)) < 0) break;//'
    claim 'no wrapper' finds 'wrapper 0,1'
    without half_sampler 's/ls_sampler_create(data->n, world_size, rank,/ls_sampler_create(data->n, 2 * world_size, rank,/'
    claim 'a sampler of another number of ranks' finds 'sampler 0,1'
fi

# --- wrong input
claim 'JSON of nothing' fails_with 64 '--json belongs to --lint' "$lockstep" run --json true
claim 'several nodes' fails_with 64 '--lint watches the ranks of one machine, started once' "$lockstep" run --lint --nnodes 2 true
claim 'restarts' fails_with 64 'leave out --nnodes and --max-restarts' "$lockstep" run --lint --max-restarts 1 true
damage() { # a rank writes something else to the notes
    lint sh -c 'echo nonsense >>"$LOCKSTEP_LINT"'
    ends_with 65 && says 'is no note of a call by one of 2 ranks'
}
claim 'notes that are none' damage
finish
