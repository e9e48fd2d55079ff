#!/bin/bash
# test_cmd_topo.sh -- `lockstep topo` as a user meets it: clusters in three forms, placements beside what ranks count, links
# that are measured (R148, R149, R159, R160 to R163, R166), and refusals.
#
#   tests/test_cmd_topo.sh BUILD
. "$(dirname "$0")/harness_train.sh"
gunzip -c "$source_dir/tests/golden/moby-dick-excerpt.txt.gz" >whale.txt
cat >llama.yaml <<YAML
model: { name: llama, n_layer: 2, n_head: 4, d_model: 64, seq_len: 32, vocab_size: 258 }
data: { name: whale.txt, tokenizer: byte }
train: { steps: 4, global_batch: 8, micro_batch: 2 }
optim: { name: adamw }
YAML
topo() { timeout -k 5 120 "$lockstep" topo "$@"; }
parses() { python3 -c "$1" <"$2"; }

# --- clusters
for name in a100-8 h100-8 b200-nvl72 ethernet-2; do
    topo show $name --svg $name.svg >$name.txt
    topo $name --json >$name.json
    claim "$name: people read its name and its source" test "$(grep -c "^$name: \|^source: NVIDIA" $name.txt)" = 2
    claim "$name: plain ASCII" test -z "$(LC_ALL=C grep -P '[^\x00-\x7F]' $name.txt $name.svg)"
    claim "$name: one object of JSON" parses "import sys, json; j = json.load(sys.stdin); assert j['name'] == '$name' and len(j['levels']) == 2" $name.json
    claim "$name: the picture has a box per device and unit" parses "
import re, sys, xml.dom.minidom as d
text = sys.stdin.read()
d.parseString(text)
import json
j = json.load(open('$name.json'))
assert text.count('class=\"c-forward\"') == j['devices'], text.count('class=\"c-forward\"')
assert text.count('class=\"c-paper box\"') == 1 + j['levels'][1]['count']" $name.svg
done
claim 'NVLink is stated as the sum of both directions' grep -q 'NVLink 4 *450 GB/s *900 GB/s\*' h100-8.txt
claim 'an adapter is not' grep -q 'NDR InfiniBand *50 GB/s *100 GB/s  *8 *400 GB/s' h100-8.txt
claim 'and the words say so' grep -q '^\* stated by its source: the sum of both directions' h100-8.txt
claim '--units sets how many there are' has_line '1024 devices, 128 node x 8 device' topo h100-8 --units 128
claim 'this machine is one, too' has_line 'core' topo local
claim 'and its JSON' parses 'import sys, json; j = json.load(sys.stdin); assert j["devices"] >= 1 and j["levels"][0]["link"] == "memory"' <(topo --json)
sed 's/count: 2/count: 3/' "$source_dir/recipes/clusters/ethernet-2.yaml" >mine.yaml
echo 'slow: [{level: cluster, unit: 1, bandwidth: 1 Gbit/s, direction: one}]' >>mine.yaml
claim 'a file of my own' has_line 'slow: ports of node 1 have 125 MB/s each' topo mine.yaml --svg mine.svg
claim 'its slow node is hatched' test "$(grep -c 'url(#topo-hatch)' mine.svg)" = 1
sed 's/Ethernet/Ethernet with a name of forty-odd characters/' mine.yaml >wordy.yaml
topo wordy.yaml --svg wordy.svg >wordy.txt
# A letter of 11 px is 6.2 px wide on average, one of 13 px 7.3 px; the box of a text is the smallest one around its first letter.
for picture in h100-8 b200-nvl72 mine wordy; do
    claim "$picture: words are within their boxes, and not hatched" parses "
import sys, xml.dom.minidom as d
svg = d.parseString(sys.stdin.read())
number = lambda e, k: float(e.getAttribute(k))
around = lambda r, x, y: number(r, 'x') < x < number(r, 'x') + number(r, 'width') and number(r, 'y') < y < number(r, 'y') + number(r, 'height')
rects = svg.getElementsByTagName('rect')
boxes = [r for r in rects if 'box' in r.getAttribute('class').split()]
hatched = [r for r in rects if 'hatch' in r.getAttribute('fill')]
texts = svg.getElementsByTagName('text')
assert len(texts) >= 2 * len(boxes) > 2
for t in texts:
    x, y = number(t, 'x'), number(t, 'y')
    box = min((r for r in boxes if around(r, x, y)), key=lambda r: number(r, 'width') * number(r, 'height'))
    wide = (6.2 if 'small' in t.getAttribute('class') else 7.3) * len(t.firstChild.data)
    assert x + wide < number(box, 'x') + number(box, 'width'), t.toxml()
    assert not any(around(r, x, y) for r in hatched), t.toxml()" $picture.svg
done

# --- placements
place() { topo place llama.yaml --topology ethernet-2 -n 4 "$@"; }
claim 'the grid has a row per node (R148)' has_line '     0  dp0.tp0  dp0.tp1  dp1.tp0  dp1.tp1' place --parallel.tp 2
claim 'a row per node, stages slowest' has_line '     1  pp1.tp0  pp1.tp1  pp1.tp2  pp1.tp3' topo place llama.yaml -t ethernet-2 --parallel.tp 4 --parallel.pp 2
claim 'a table says what each axis divides, and what that costs (R149, R153)' has_line 'dp        4  inputs: samples' \
    topo place llama.yaml -t ethernet-2 --parallel.tp 2
claim 'and on which link it is' has_line 'tp        2  model state: every layer              26  323.34 KiB PCIe 4.0 x16' place --parallel.tp 2
claim 'all orders are evaluated' has_line 'certificate: all 6 orders were evaluated' topo place llama.yaml -t ethernet-2 --parallel.tp 2 --parallel.cp 2
claim 'a bad order is warned of' has_line 'warning: tp calls' topo place llama.yaml -t ethernet-2 --parallel.tp 2 --order tp-dp --train.global_batch 512
claim 'a good one is not' test -z "$(topo place llama.yaml -t ethernet-2 --parallel.tp 2 --train.global_batch 512 | grep warning)"

# A row's bytes are those that ranks count together: a ring sends 2 (n-1)/n of a vector, or (n-1)/n (R160). Their names are those of
# the collectives that run: all_reduce with DDP and TP, all_gather and reduce_scatter with FSDP, messages with a ring of
# ranks that divide sequences (R161 to R163).
counted_as_planned() { # flags, collectives that have to be there
    local flags=$1 names=$2
    # shellcheck disable=SC2086
    place --json $flags >plan.json || return 1
    # shellcheck disable=SC2086
    timeout -k 5 120 "$lockstep" train llama.yaml -n 4 --comm.transport tcp --comm.algo ring --json $flags >run.txt 2>err || { cat err; return 1; }
    python3 - "$names" <<'PY'
import json, sys
run = json.loads(open('run.txt').read().strip().split('\n')[-1])['comm']
plan = json.load(open('plan.json'))
ranks, stages = plan['ranks'], plan['mesh']['pp']
bytes_ = {}
for r in plan['judged']['rows']:
    n, name = 1, r['collective']
    axes = [a for a in plan['mesh'] if plan['mesh'][a] > 1] if r['ranks'] == 'all' else r['ranks'].split(' x ')
    for axis in axes:
        n *= plan['mesh'][axis]
    share = {'all_reduce': 2 * (n - 1) / n, 'reduce_scatter': (n - 1) / n, 'all_gather': (n - 1) / n, 'messages': 1}[name]
    several = 'pp' in axes and name != 'messages' # of several stages all have called the same
    together = r['bytes'] * ranks if several else sum(r['bytes_per_stage']) * ranks / stages
    name = 'sendrecv' if name == 'messages' else name
    bytes_[name] = bytes_.get(name, 0) + share * together
missing = set(sys.argv[1].split()) - set(bytes_)
assert not missing, missing
for name, v in run.items():
    if isinstance(v, dict) and (v['bytes'] or name in bytes_):
        print(name, 'counted', v['bytes'], 'planned', bytes_.get(name, 0))
        assert abs(v['bytes'] - bytes_.get(name, 0)) <= 0.5, name
PY
}
claim 'DDP and TP: all_reduce' counted_as_planned '--parallel.tp 2' 'all_reduce'
claim 'TP alone' counted_as_planned '--parallel.tp 4' 'all_reduce'
claim 'DDP alone' counted_as_planned '' 'all_reduce'
claim 'context parallelism: messages' counted_as_planned '--parallel.cp 2' 'all_reduce sendrecv'
claim 'pipeline stages: messages' counted_as_planned '--parallel.pp 2' 'all_reduce sendrecv'
claim 'stages and tensor parallelism' counted_as_planned '--parallel.pp 2 --parallel.tp 2' 'all_reduce sendrecv'
claim 'each rank with two stages' counted_as_planned '--parallel.pp 2 --pipeline.schedule interleaved --model.n_layer 4' 'all_reduce sendrecv'
claim 'FSDP: all_gather and reduce_scatter' counted_as_planned '--zero.stage 3 --zero.copy rank --train.micro_batch 0' 'all_gather reduce_scatter'

# --- links (R166) and transports (R159)
topo links -n 3 --transport fault:tcp,rate=20MB/s@0-1 --json >links.json
claim 'a slow pair is flagged, in both directions' parses '
import sys, json
j = json.load(sys.stdin)
flagged = {(f["from"], f["to"]) for f in j["flagged"] if f["why"] == "slow"}
assert {(0, 1), (1, 0)} <= flagged, j
assert 10e6 < j["bytes_per_s"][0][1] < 20.5e6 and 10e6 < j["bytes_per_s"][1][0] < 20.5e6, j' links.json
claim 'people see it' has_line 'slow: from rank 0 to rank 1 0.01' topo links -n 3 --transport fault:tcp,rate=20MB/s@0-1
claim 'two ranks in shared memory' has_line '2 ranks, shm; pairs one after another' topo links
topo transports --json >transports.json
claim 'shared memory takes half the processor time per GB of TCP as ranks use it, and half its latency, at most' parses '
import sys, json
c = {x["name"]: x for x in json.load(sys.stdin)["carriers"]}
assert set(c) == {"shm", "unix", "tcp", "tcp+frames"}
assert 2 * c["shm"]["cpu_s_per_gb"] < c["tcp+frames"]["cpu_s_per_gb"] and 2 * c["shm"]["latency_s"] < c["tcp+frames"]["latency_s"], c' transports.json
claim 'people see a table' has_line 'CPU s per GB' topo transports

# --- refusals
claim 'no such cluster' fails_with 74 'no cluster of that name; clusters: a100-8 b200-nvl72 ethernet-2 h100-8' topo h1000
claim 'a file with a fault has its line' fails_with 65 "mine.yaml:32: level: there is no level 'clutser'; did you mean 'cluster'?" \
    bash -c "sed -i 's/level: cluster/level: clutser/' mine.yaml; '$lockstep' topo mine.yaml"
claim 'more ranks than devices' fails_with 78 '16 ranks do not fit on ethernet-2: it has 8 devices (2 node x 4 device)' topo place llama.yaml -t ethernet-2 -n 16
claim 'a mesh that does not fit' fails_with 78 'parallel' topo place llama.yaml -t ethernet-2 --parallel.tp 3
claim 'no cluster' fails_with 64 'which cluster?' topo place llama.yaml
claim 'an order without an axis' fails_with 64 'tp, which has 2 ranks, is missing' place --parallel.tp 2 --order dp
claim 'a flag of another command' fails_with 64 'belongs to `lockstep train`' place --dry-run
claim 'a flag of another part' fails_with 64 '--order belongs to `lockstep topo place`' topo h100-8 --order dp
claim 'a batch smaller than the replicas' fails_with 78 'train.global_batch is 1, which 2 ranks cannot share equally: the nearest that fits is 4' \
    place --parallel.pp 2 --train.global_batch 1
claim 'and one that leaves a stage without' fails_with 78 'train.micro_batch is 4, which does not divide the 2 samples of a rank: the nearest that does is 2' \
    place --parallel.pp 2 --train.global_batch 4 --train.micro_batch 4
claim 'parts of an axis' fails_with 78 'zero.hsdp' place --zero.stage 1 --zero.hsdp 2
claim 'an unknown transport' fails_with 78 "no transport named 'shmm'" topo links --transport shmm
claim 'one rank' fails_with 64 'one rank alone has no links' topo links -n 1
claim 'a full disk' fails_with 74 'standard output' bash -c "'$lockstep' topo h100-8 >/dev/full"
finish
