#!/bin/bash
# long_pipe_csv.sh -- PyTorch reads our pipeline schedules: `_load_csv` of torch.distributed.pipelining takes what `lockstep pipeline
# --csv` prints, checks its order, derives sends and receives, and plays them without deadlock; and it loads the file of
# --messages as compute_comms. Needs a torch with WAIT_SEND actions (bench/peers/fetch --torch, or PYTHONPATH).
#
#   tests/long_pipe_csv.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1 PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$source_dir/.cache/peers/torch
claim 'torch is here: bench/peers/fetch --torch brings it' python3 -c 'from torch.distributed.pipelining import schedules'
[ "$failed" = 0 ] || finish
cat >reads.py <<'PY'
import csv, re, sys
from torch.distributed.pipelining import schedules as S

def runtime(ranks, stages, micro):
    """A schedule whose lists are still empty: what its constructor takes from stages that exist."""
    r = S._PipelineScheduleRuntime.__new__(S._PipelineScheduleRuntime)
    r.__dict__.update(pp_group_size=ranks, _num_stages=stages, _n_microbatches=micro, _stages=[], pipeline_order={},
                      stage_index_to_group_rank={}, _unshard_lookahead='full', _max_active_stages=3, _defer_reduce_grad_wait=False,
                      _defer_pp_recv=False, _max_outstanding_sends=None, _has_backward=True)
    return r

def look(name, ranks, stages, micro):
    r = runtime(ranks, stages, micro)
    r._load_csv(name + '.csv')
    cells = [c for row in csv.reader(open(name + '.csv')) for c in row]
    assert [str(a) for rank in range(ranks) for a in r.pipeline_order[rank]] == cells  # it writes them as we do
    forwards = {(s, m) for s in range(stages) for m in range(micro)}
    got = [(a.stage_index, a.microbatch_index) for acts in r.pipeline_order.values() for a in acts if a.computation_type == S.F]
    assert len(got) == len(forwards) and set(got) == forwards
    rank_of = lambda s: r.stage_index_to_group_rank[s]
    lowered = S._add_send_recv({k: list(v) for k, v in r.pipeline_order.items()}, rank_of, stages)
    S._simulate_comms_compute(lowered, rank_of, stages)  # raises on a deadlock of the sends and receives that PyTorch derives
    ours = {k: [S._Action.from_str(c) for c in row] for k, row in enumerate(csv.reader(open(name + '.messages.csv')))}
    S._simulate_comms_compute(ours, rank_of, stages)
    unwaited = {k: [a for a in row if 'WAIT_SEND' not in str(a)] for k, row in ours.items()}
    assert S._add_wait_send(unwaited) == ours  # the waits are where PyTorch puts them, and it loads the file
    comms = runtime(ranks, stages, micro)
    comms._load_csv(name + '.messages.csv', format='compute_comms')
    assert comms.pipeline_order_with_comms == ours
    ends = lambda acts: {str(a) for a in acts if re.search('SEND_[FB]|RECV_[FB]', str(a)) and 'WAIT' not in str(a)}
    for rank in range(ranks):  # and the same messages
        assert ends(ours[rank]) == ends(lowered[rank]), rank

for line in open(sys.argv[1]):
    name, *numbers = line.split()
    try:
        look(name, *map(int, numbers))
        print('read', name)
    except Exception as e:
        print('refused', name, type(e).__name__, str(e).split('\n')[0])
PY
: >all
for row in 'gpipe 3 1 4' 'gpipe 2 1 1' '1f1b 4 1 8' '1f1b 4 1 3' 'interleaved 4 2 8' 'interleaved 3 3 6' 'zb-h1 4 1 8' 'zb-h1 4 1 2' \
    'zb-v 3 2 4' 'zb-v 4 2 8' 'dualpipe-v 4 2 8' 'dualpipe-v 3 2 7'; do
    read -r schedule ranks chunks micro <<<"$row"
    name=$schedule-$ranks-$chunks-$micro
    arguments=(--schedule "$schedule" --stages "$ranks" --chunks "$chunks" --micro "$micro" --csv)
    "$lockstep" pipeline "${arguments[@]}" >"$name.csv" && "$lockstep" pipeline "${arguments[@]}" --messages >"$name.messages.csv" &&
        echo "$name $ranks $((ranks * chunks)) $micro" >>all
done
claim 'all schedules are written' test "$(wc -l <all)" = 12
timeout 300 python3 reads.py all >out 2>err
while read -r name _; do
    claim "PyTorch reads $name" grep -qx "read $name" out
done <all
# and refuses what is damaged: the test can fail
sed '1s/0F0,//' 1f1b-4-1-8.csv >damaged.csv
cp 1f1b-4-1-8.messages.csv damaged.messages.csv
echo 'damaged 4 4 8' >one
timeout 300 python3 reads.py one >out.damaged 2>&1
claim 'PyTorch refuses a schedule without its first forward' grep -q '^refused damaged' out.damaged
[ "$failed" = 0 ] || cat out err out.damaged
finish
