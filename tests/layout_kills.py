"""layout_kills.py -- kills a random rank in a random step of a random layout (data, tensor, sequence, context and
pipeline parallelism, with --experts expert parallelism, ZeRO, recompute, shared memory or tcp, one launcher or two): the report names the rank and the step, every
launcher ends in time with exit status 82, and nothing is left.

    python3 tests/layout_kills.py LOCKSTEP RECIPE --runs 50 --seed 1

A run's seed decides all of it and is printed with what is wrong. Exit status 1 if anything is.
"""
import argparse
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

a = argparse.ArgumentParser()
a.add_argument("lockstep")
a.add_argument("recipe", help="a model with 4 heads and sequences of 16 tokens; 8 samples per step")
a.add_argument("--runs", type=int, default=50)
a.add_argument("--seed", type=int, default=1)
a.add_argument("--experts", action="store_true", help="the model has 4 experts, which ranks divide")
args = a.parse_args()

STEPS = 6
MOST_RANKS = 8
TIMEOUT_S = 30  # of a collective: a launcher that waits for it has not noticed the death
HANG_S = 90
GONE_S = 50  # of what goes away by itself
DIED = 82


def draw(rng):
    """(ranks, launchers, options)"""
    while True:
        dp, tp, cp = rng.choice((1, 2, 4)), rng.choice((1, 2, 4)), rng.choice((1, 2, 4))
        pp = rng.choice((1, 2)) if not args.experts else 1
        ep = rng.choice((2, 4)) if args.experts else 1
        ranks = dp * ep * tp * cp * pp
        if ep * tp * cp * pp > 1 and ranks <= MOST_RANKS:
            break
    o = {"parallel.dp": dp, "parallel.tp": tp, "parallel.cp": cp, "parallel.pp": pp}
    if pp > 1:
        o["pipeline.schedule"] = rng.choice(("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"))
    if args.experts:
        o |= {"parallel.ep": ep, "moe.capacity_factor": rng.choice((0, 1)), "moe.aux_loss": rng.choice((0, 0.01))}
    if tp > 1:
        o["parallel.sp"] = rng.choice(("true", "false"))
    if cp > 1:
        o["parallel.context"] = rng.choice(("ring", "gather", "ulysses") if 4 // tp % cp == 0 else ("ring", "gather"))
        if cp == 4 and tp < 4 and rng.random() < 0.5:
            o["parallel.context"] = "ulysses-ring"
        o["parallel.cp_split"] = rng.choice(("zigzag", "contiguous"))
    launchers = 2 if rng.random() < 0.25 else 1
    o["zero.stage"] = rng.randrange(2 if o.get("pipeline.schedule", "").startswith("zb") else 4)
    if o["zero.stage"] == 3:
        o["zero.copy"] = rng.choice(("host", "rank"))
    o["train.recompute"] = rng.choice(("none", "selective", "full"))
    o["train.micro_batch"] = rng.choice((0, 1))
    if o.get("zero.copy") != "host" and rng.random() < 0.4:
        o["comm.transport"] = "tcp"
    return ranks, launchers, o


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def belongs_to(folder):
    """Processes with the folder in their arguments, and shared memory of this program."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                if folder in f.read():
                    found.add(f"process {pid}")
        except OSError:
            pass
    return found | {f"/dev/shm/{n}" for n in os.listdir("/dev/shm") if n.startswith("lockstep")}


def start(folder, ranks, launchers, options):
    train = [args.lockstep, "train", args.recipe, "--run.dir", os.path.join(folder, "run"), "--comm.timeout", str(TIMEOUT_S)]
    for key, value in options.items():
        train += [f"--{key}", str(value)]
    port, jobs = free_port(), []
    for node in range(launchers):
        run = [args.lockstep, "run", "-n", str(ranks // launchers)]
        if launchers > 1:
            run += ["--nnodes", str(launchers), "--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port),
                    "--secret-file", os.path.join(os.path.dirname(os.path.abspath(args.recipe)), "s")]
        err = open(os.path.join(folder, f"err{node}"), "w+")
        jobs.append((subprocess.Popen(run + ["--"] + train, stdout=subprocess.DEVNULL, stderr=err), err))
    return jobs


def end(jobs):
    """Waits for all of them; exit statuses, or what is wrong."""
    hang, codes = time.monotonic() + HANG_S, []
    for job, _ in jobs:
        try:
            codes.append(job.wait(timeout=max(0.1, hang - time.monotonic())))
        except subprocess.TimeoutExpired:
            for other, _ in jobs:
                other.kill()
            return None
    return codes


def report(err):
    err.seek(0)
    lines = [line for line in err.read().splitlines() if line.startswith("lockstep: ")]
    return lines[0] if lines else ""


def left(folder, before):
    gone = time.monotonic() + GONE_S
    now = belongs_to(folder) - before
    while now and time.monotonic() < gone:  # other jobs run beside this one: what goes away does not count
        time.sleep(0.05)
        now &= belongs_to(folder)
    return now | {os.path.join(d, n) for d, dirs, files in os.walk(os.path.join(folder, "run")) for n in dirs + files if ".tmp" in n}


def one(seed):
    """What is wrong, and what was run."""
    rng = random.Random(seed)
    ranks, launchers, options = draw(rng)
    victim, step = rng.randrange(ranks), rng.randint(1, STEPS)
    options["inject"], options["train.steps"] = f"kill@{victim}:{step}", STEPS
    name = f"{ranks} ranks, {launchers} launcher{'s' if launchers > 1 else ''}, " + ", ".join(f"{k} {v}" for k, v in options.items())
    folder = tempfile.mkdtemp(prefix="lockstep-layout-kills-")
    wrong = []
    try:
        before, begun = belongs_to(folder), time.monotonic()
        jobs = start(folder, ranks, launchers, options)
        codes = end(jobs)
        took = time.monotonic() - begun
        texts = [report(err) for _, err in jobs]
        want = re.compile(rf"lockstep: error\[rank-died\] gen=1 step={step} rank={victim} .*was killed by signal 9 \(SIGKILL\)")
        if codes is None:
            wrong.append(f"a launcher does not end within {HANG_S} s")
        elif codes != [DIED] * launchers:
            wrong.append(f"exit status {codes}, expected {DIED}")
        elif took > TIMEOUT_S:
            wrong.append(f"it takes {took:.1f} s")
        wrong += [f"launcher {i} reports '{t}'" for i, t in enumerate(texts) if not want.match(t)]
        wrong += [f"left: {x}" for x in sorted(left(folder, before))]
        return wrong, name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    failed = 0
    for seed in range(args.seed, args.seed + args.runs):
        wrong, name = one(seed)
        failed += bool(wrong)
        for text in wrong:
            print(f"seed {seed}: {name}: {text}", flush=True)
    print(f"{args.runs - failed} of {args.runs} layouts from seed {args.seed} on: the report names the rank that was killed, and nothing is left")
    return 1 if failed else 0


sys.exit(main())
