"""kills.py -- kills a random process of a training at a random instant, again and again: each run has to end with the
final line of the undisturbed one, and to leave nothing behind.

    python3 tests/kills.py LOCKSTEP --runs 50 --seed 1 --stage 0 [--transport tcp] [--ranks 2] [--nodes "PREFIX0;PREFIX1"] [--snapshot 1]

A rank that is killed comes back by `lockstep run --max-restarts`. When a launcher is killed, the same command runs once
more, with checkpoint.resume auto. It prints how late the launcher noticed a rank's death and when the first step came
after it; exit status 1 if a run ended otherwise. With --nodes there are two launchers, each behind its prefix (such as
`ip netns exec NAME`), which meet at --addr; both are started again.

With --snapshot N the training has snapshots in memory, and at most N steps may be taken again after a death. Each node
has memory of its own, and half of the nodes whose launcher is killed lose it.
"""
import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

a = argparse.ArgumentParser()
a.add_argument("lockstep")
a.add_argument("--runs", type=int, default=50)
a.add_argument("--seed", type=int, default=1)
a.add_argument("--stage", type=int, default=0)
a.add_argument("--transport", default="")
a.add_argument("--ranks", type=int, default=2, help="per node")
a.add_argument("--nodes", default="", help="prefixes of two launchers, separated by a semicolon")
a.add_argument("--addr", default="127.0.0.1")
a.add_argument("--option", action="append", default=[], help="of the training, for example --zero.copy=rank")
a.add_argument("--snapshot", type=int, default=0, help="steps between snapshots in memory")
a.add_argument("--recipe", default="gpt.yaml")
a.add_argument("--steps", type=int, default=60)
a.add_argument("--every", type=int, default=10)
a.add_argument("--first-step-s", type=float, default=1.0, help="target of the first step after a death")
a.add_argument("--notice-ms", type=float, default=50.0, help="target of its notice, 99th percentile")
args = a.parse_args()

PATIENCE = 120.0  # seconds: longer is a hang
MOST_TRIES = 20  # until a run is still there at its instant


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Job:
    """The launchers of one run and what they print."""

    def __init__(self, folder, restarts):
        self.folder, self.events = folder, os.path.join(folder, "events")
        train = [args.lockstep, "train", args.recipe, "--run.dir", os.path.join(folder, "run"), "--checkpoint.resume", "auto",
                 "--checkpoint.every", str(args.every), "--train.steps", str(args.steps), "--zero.stage", str(args.stage),
                 "--log.every", "1000000"] + args.option
        if args.snapshot:
            train += ["--checkpoint.snapshot", str(args.snapshot)]
        if args.transport:
            train += ["--comm.transport", args.transport]
        prefixes = [shlex.split(p) for p in args.nodes.split(";")] if args.nodes else [[]]
        port = free_port()
        self.out = [open(os.path.join(folder, f"out{i}"), "w+") for i in range(len(prefixes))]
        self.err = [open(os.path.join(folder, f"err{i}"), "a+") for i in range(len(prefixes))]
        self.launcher, self.memory = [], []
        for i, prefix in enumerate(prefixes):
            run = prefix + [args.lockstep, "run", "-n", str(args.ranks), "--max-restarts", str(restarts)]
            if i == 0:
                run += ["--events", self.events]
            if len(prefixes) > 1:
                run += ["--nnodes", str(len(prefixes)), "--node-rank", str(i), "--master-addr", args.addr, "--master-port", str(port),
                        "--secret-file", "s"]
            self.memory.append(os.path.join(folder, f"memory{i}") if len(prefixes) > 1 else "/dev/shm")
            os.makedirs(self.memory[i], exist_ok=True)
            env = dict(os.environ, LOCKSTEP_SNAPSHOT_DIR=self.memory[i])
            self.launcher.append(subprocess.Popen(run + ["--"] + train, stdout=self.out[i], stderr=self.err[i], env=env))

    def wait(self):
        codes = []
        for p in self.launcher:
            try:
                codes.append(p.wait(timeout=PATIENCE))
            except subprocess.TimeoutExpired:
                for q in self.launcher:
                    q.kill()
                raise RuntimeError("a launcher does not end")
        return codes

    def final(self):
        self.out[0].seek(0)
        lines = self.out[0].read().splitlines()
        return lines[-1] if lines else ""

    def lines(self):
        try:
            with open(self.events) as f:
                return [json.loads(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []


def children(pid):
    """The processes below one, ranks last."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            mine = [int(x) for x in f.read().split()]
    except OSError:
        return []
    return mine + [c for m in mine for c in children(m)]


def ranks_of(pid):
    return [p for p in children(pid) if not children(p)]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill_one(job, rng, at):
    """Kills a rank or a launcher `at` seconds after its start; what it was, and when. None: nothing was there any more."""
    time.sleep(at)
    i = rng.randrange(len(job.launcher))
    launcher = job.launcher[i]
    ranks = ranks_of(launcher.pid)
    ours = [launcher.pid] + ranks
    if launcher.poll() is not None or not ranks:
        return None
    if rng.random() < 0.25:
        below = [c for c in [launcher.pid] + children(launcher.pid) if c not in ranks]
        os.kill(below[-1], signal.SIGKILL)  # behind a prefix the launcher is a child
        if below[-1] != launcher.pid:
            launcher.kill()
        end = time.monotonic() + 2
        while any(is_alive(p) for p in ours):
            if time.monotonic() > end:
                raise RuntimeError("a process outlives its launcher by 2 s")
            time.sleep(0.005)
        return "launcher", i, now_ns()
    t = now_ns()
    os.kill(rng.choice(ranks), signal.SIGKILL)
    return "rank", i, t


def leftovers(job, folder):
    held = [n for d in set(job.memory + ["/dev/shm"]) for n in os.listdir(d) if n.startswith("lockstep")]
    temporary = [os.path.join(d, n) for d, dirs, files in os.walk(os.path.join(folder, "run")) for n in dirs + files
                 if n.startswith(".")]
    return held, temporary


def last_step(lines):
    return max((e["step"] for e in lines if e["event"] == "step"), default=0)


def check_redone(lines, begun):
    """At most args.snapshot of the steps before lines[begun], which begin after a death, are taken again."""
    first = next((e["step"] for e in lines[begun:] if e["event"] == "step"), None)
    again = last_step(lines[:begun]) - (first - 1) if first else 0
    if args.snapshot and again > args.snapshot:
        raise RuntimeError(f"{again} steps are taken again")
    return again


def one(rng, want, span):
    """One run with one death; (what, ms until noticed, ms until the first step after it, steps taken again)."""
    folder = tempfile.mkdtemp(prefix="lockstep-kills-")
    try:
        job = Job(folder, 3)
        killed = kill_one(job, rng, rng.uniform(0, span))
        if killed and killed[0] == "launcher" and len(job.launcher) > 1:
            for k, p in enumerate(job.launcher):  # the others cannot go on without it for ever
                if k != killed[1]:
                    p.send_signal(signal.SIGTERM)
        codes = job.wait()
        begun = None
        if killed and killed[0] == "launcher":
            if args.nodes and rng.random() < 0.5:
                shutil.rmtree(job.memory[killed[1]])
            begun = len(job.lines())
            job = Job(folder, 3)
            codes = job.wait()
        if any(codes):
            raise RuntimeError(f"exit status {codes}")
        if job.final() != want:
            raise RuntimeError(f"ends with '{job.final()}'")
        held, temporary = leftovers(job, folder)
        if held or (temporary and not (killed and killed[0] == "launcher")):
            raise RuntimeError(f"left behind: {held} {temporary}")
        if not killed:
            return None, None, None, None
        lines = job.lines()
        if begun is None:
            begun = next((k for k, e in enumerate(lines) if e["event"] == "gen_start" and e["gen"] > 1), len(lines))
        redone = check_redone(lines, begun)
        lines = [e for e in job.lines() if e["t_ns"] >= killed[2]]
        seen = [e["t_ns"] for e in lines if e["event"] == "detect"]
        again = next((k for k, e in enumerate(lines) if e["event"] == "gen_start"), None)
        step = [e["t_ns"] for e in lines[again:] if e["event"] == "step"] if again is not None else []
        return (killed[0], (seen[0] - killed[2]) / 1e6 if seen and killed[0] == "rank" else None,
                (step[0] - killed[2]) / 1e6 if step and killed[0] == "rank" else None, redone)
    except RuntimeError as e:
        for name in sorted(os.listdir(folder)):
            if name.startswith("err"):
                with open(os.path.join(folder, name)) as f:
                    print("".join("    | " + line for line in f.readlines()[-30:]))
        raise RuntimeError(str(e)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def undisturbed():
    folder = tempfile.mkdtemp(prefix="lockstep-kills-")
    try:
        t = time.monotonic()
        job = Job(folder, 0)
        codes = job.wait()
        if any(codes):
            for f in job.err:
                f.seek(0)
                print(f.read())
            sys.exit(f"the undisturbed run ends with {codes}")
        return job.final(), time.monotonic() - t
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def percentile(values, p):
    v = sorted(values)
    return v[min(len(v) - 1, int(p / 100 * len(v)))] if v else float("nan")


def main():
    want, span = undisturbed()
    rng = random.Random(args.seed)
    noticed, first, redone, ranks, launchers, failed = [], [], [], 0, 0, 0
    for run in range(args.runs):
        try:
            for _ in range(MOST_TRIES):
                what, ms, step_ms, again = one(rng, want, span)
                if what:  # else the run was over before: another instant
                    break
            else:
                raise RuntimeError(f"{MOST_TRIES} runs were over before the instant of their death")
        except RuntimeError as e:
            failed += 1
            print(f"run {run} of seed {args.seed}: {e}", flush=True)
            continue
        ranks += what == "rank"
        launchers += what == "launcher"
        noticed += [ms] if ms is not None else []
        first += [step_ms] if step_ms is not None else []
        redone.append(again)
    name = f"stage {args.stage}, {args.transport or 'shm'}" + (", two hosts" if args.nodes else "")
    print(f"{name}: {args.runs - failed} of {args.runs} runs end with the undisturbed line ({span:.2f} s): {ranks} ranks and {launchers} "
          f"launchers were killed")
    print(f"{name}: noticed after ms: median {percentile(noticed, 50):.2f}, p99 {percentile(noticed, 99):.2f} (target {args.notice_ms:g}); "
          f"first step again: median {percentile(first, 50):.1f}, max {max(first, default=float('nan')):.1f} "
          f"(target {1000 * args.first_step_s:g})")
    print(f"{name}: steps taken again: mean {sum(redone) / max(1, len(redone)):.2f}, most {max(redone, default=0)}"
          + (f" (allowed {args.snapshot})" if args.snapshot else ""))
    late = percentile(noticed, 99) > args.notice_ms or max(first, default=0) > 1000 * args.first_step_s
    if late:
        print(f"{name}: a target is missed")
    return 1 if failed else 0


sys.exit(main())
