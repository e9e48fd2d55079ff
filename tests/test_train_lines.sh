#!/bin/bash
# test_train_lines.sh -- lines that a run prints are whole: on a terminal, where a bar is drawn between them, and however
# long they are.
#
#   tests/test_train_lines.sh BUILD
. "$(dirname "$0")/harness.sh"
lockstep=$build/lockstep
cd "$tmp" || exit 1
export OMP_NUM_THREADS=1
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE LOCKSTEP_DEBUG LOCKSTEP_TTY_COLUMNS LOCKSTEP_TTY_STDOUT

cat >mlp.yaml <<YAML
model: { name: mlp, dims: [16, 32, 4] }
data: { name: synthetic }
train: { epochs: 30, global_batch: 100 }
log: { tensorboard: false, every: 7 }
YAML

# python3 terminal.py COMMAND...: runs it on a pseudo-terminal, and prints the lines that are seen there, as they are when
# the cursor leaves them; the last line is `bars N status S`: how often a bar was drawn, and the exit status. The file
# `shown` is there once the bar of a step 1 of 2 stands on the terminal.
cat >terminal.py <<'PY'
import fcntl, os, pty, re, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 50, 120, 0, 0))
raw = b''
while True:
    try:
        part = os.read(fd, 65536)
    except OSError: # EIO: nobody has it open any more
        break
    if not part:
        break
    raw += part
    if b'| step 1/2' in raw and not os.path.exists('shown'):
        open('shown', 'w').close()
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
line, at = [], 0
text = raw.decode()
for m in re.finditer(r'\x1b\[([0-9;]*)([A-Za-z])|(.)', text, re.S):
    c = m.group(3)
    if m.group(2) == 'K':
        del line[at:]
    elif c == '\r':
        at = 0
    elif c == '\n':
        print(''.join(line).rstrip())
        line, at = [], 0
    elif c:
        line[at:at + 1] = c
        at += 1
print('bars', len(re.findall(r'\[[#-]+\] +\d+% \| epoch', text)), 'status', status)
PY
on_terminal() { rm -f shown; timeout -k 5 120 python3 terminal.py "$@" >seen; }

# A bar was drawn, and no line has a part of it.
whole() {
    grep -qE '^bars [1-9]' seen || { echo "no bar: $(tail -n 3 seen)"; return 1; }
    ! grep -nE '[#-]+\] +[0-9]+%|\| (epoch|step) |\| ETA|samples/s \|' seen
}
lines() { # count, pattern
    local n
    n=$(grep -cE "$2" seen)
    [ "$n" = "$1" ] || { echo "$n lines like '$2', expected $1:"; cat seen; return 1; }
}

for ranks in 1 2; do
    on_terminal "$lockstep" train mlp.yaml --nproc-per-node $ranks --run.dir run-$ranks
    claim "$ranks ranks: no bar stays in a line" whole
    claim "$ranks ranks: every validation line is whole" lines 30 '^epoch=[0-9]+ test_loss=[0-9.]+ test_accuracy=[0-9.]+$'
    claim "$ranks ranks: the last line, too" lines 1 '^final step=300 loss=[0-9a-fx.p+-]+ digest=[0-9a-f]{32}$'
    claim "$ranks ranks: it ends in order" lines 1 'status 0$'
done

# Lines of other ranks, and of the launcher, come by way of stderr.
on_terminal "$lockstep" train mlp.yaml --nproc-per-node 2 --run.dir run-killed --inject kill@1:200
claim 'a rank is killed: no bar stays in a line' whole
claim 'a rank is killed: the report begins a line' lines 1 '^lockstep: .*rank=1.*SIGKILL'

# A program whose rank 0 draws a live line, which stands on the terminal when rank 1 says a line of its own.
cat >two.py <<'PY'
import os, sys, time
if os.environ['RANK'] == '0':
    os.write(2, b'\r[##--]  50% | epoch 0 | step 1/2\x1b[K')
    while not os.path.exists('said'):
        time.sleep(0.01)
    os.write(2, b'\r[####] 100% | epoch 0 | step 2/2\x1b[K\n')
else:
    while not os.path.exists('shown'):
        time.sleep(0.01)
    os.write(2, b'a line of rank 1\n')
    open('said', 'w').close()
PY
on_terminal "$lockstep" run --nproc-per-node 2 -- python3 two.py
claim 'a line of another rank takes the place of a live one' lines 1 '^a line of rank 1$'
claim 'the live line of a program stays when it ends' lines 1 '^\[####\] 100% \| epoch 0 \| step 2/2$'

# Rank 1 fails while the live line of rank 0 stands there.
cat >fails.py <<'PY'
import os, sys, time
if os.environ['RANK'] == '0':
    os.write(2, b'\r[##--]  50% | epoch 0 | step 1/2\x1b[K')
    time.sleep(100)
while not os.path.exists('shown'):
    time.sleep(0.01)
sys.exit(3)
PY
on_terminal "$lockstep" run --nproc-per-node 2 -- python3 fails.py
claim 'a report takes the place of a live line' whole
claim 'a report: exit 3' lines 1 'status 3$'

# --- long lines ---------------------------------------------------------------------------------------------------
for ((i = 0; i < 50; i++)); do echo "A rank waits for $((i * 7919 % 97)) others."; done >text.txt
cat >gpt.yaml <<YAML
model: { name: gpt2, n_layer: 12, n_head: 2, d_model: 8, seq_len: 8 }
data: { path: tokens }
train: { steps: 2, global_batch: 2 }
log: { tensorboard: false }
YAML
"$lockstep" data prepare text.txt --tokenizer byte --out tokens >out 2>&1 || cat out
"$lockstep" train gpt.yaml --run.dir deep --dump-buckets >out 2>err || cat err
names() { # in each of two dumps every parameter stands once
    local n
    n=$(grep '^  bucket' out | grep -oE 'transformer\.[a-z0-9._]+' | sort | uniq -c | awk '$1 == 2' | wc -l)
    [ "$n" = 148 ] || { echo "$n parameters stand there twice, expected 148"; cat out; return 1; }
    [ "$(grep -cE '^  bucket' out)" = "$(grep -cE '^  bucket [0-9]+: .*: [0-9]+ bytes$' out)" ] || { cat out; return 1; }
    awk '/^  bucket/ && length > 2000 { long = 1 } END { exit !long }' out || { echo 'no line is longer than 2000 bytes'; return 1; }
}
claim '--dump-buckets names every parameter' names
finish
