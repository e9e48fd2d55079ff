"""layout_kills.py -- kills a random rank of a random layout (data, tensor, sequence, context and pipeline parallelism,
with --experts expert parallelism, ZeRO, recompute, shared memory or tcp, one launcher or two), in a random step or at a
random instant of it: the report names the rank, every launcher ends in time with exit status 82, and nothing is left.
If there is a checkpoint, another random layout resumes it, and the losses of all steps are those of one rank.

    python3 tests/layout_kills.py LOCKSTEP RECIPE --runs 50 --seed 1

The seed of a run decides everything about it and is printed with each error. Exit status 1 if there are errors.
"""
import argparse
import glob
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

a = argparse.ArgumentParser()
a.add_argument("lockstep")
a.add_argument("recipe", help="a model of 4 layers, 8 heads and sequences of 32 tokens; 8 samples per step")
a.add_argument("--runs", type=int, default=50)
a.add_argument("--seed", type=int, default=1)
a.add_argument("--experts", action="store_true", help="the model has 4 experts, which ranks divide")
a.add_argument("--verbose", action="store_true", help="print every layout")
args = a.parse_args()

BATCH = 8
HEADS = 8
STEPS = 6
MOST_RANKS = 16
TIMEOUT_S = 30  # of a collective: a launcher that waits for it has not noticed the death
HANG_S = 90
NOTICED_S = 1.2  # after the death: the heartbeat deadline and 0.2 s
ENDED_S = 10  # after it was noticed: ranks that do not end by themselves are killed after a grace period
GONE_S = 50  # of what goes away by itself
LOSS = 1e-5  # relative difference from one rank, f32
MOST_TRIES = 5  # until a run is still there at its instant
DIED = 82


def draw_axes(rng, o):
    """How ranks divide batch, layers, heads, sequences and experts."""
    while True:
        pp, dp, tp, cp = rng.choice((1, 2, 4)), rng.choice((1, 2, 4)), rng.choice((1, 2, 4)), rng.choice((1, 2, 4))
        ep = rng.choice((2, 4)) if args.experts else 1
        if ep * tp * cp * pp > 1 and pp * dp * ep * tp * cp <= MOST_RANKS and dp * ep <= BATCH:
            break
    o |= {"parallel.dp": dp, "parallel.tp": tp, "parallel.cp": cp, "parallel.pp": pp}
    if ep > 1:
        o["parallel.ep"] = ep
    if tp > 1:
        o["parallel.sp"] = rng.choice(("true", "false"))
        if o["parallel.sp"] == "false":
            o["parallel.tp_pieces"] = rng.choice((1, 2, 4))
    if cp > 1:
        ways = ["ring", "gather"] + ["ulysses"] * (HEADS // tp % cp == 0) + ["ulysses-ring"] * (cp == 4)
        o["parallel.context"] = rng.choice(ways)
        o["parallel.cp_split"] = rng.choice(("zigzag", "contiguous"))
    return pp, dp, ep, tp, cp


def draw(rng):
    """(ranks, launchers, options)"""
    o = {}
    pp, dp, ep, tp, cp = draw_axes(rng, o)
    ranks = pp * dp * ep * tp * cp
    if pp > 1:  # 6 units are no 8 stages
        o["pipeline.schedule"] = rng.choice(["gpipe", "1f1b", "zb-h1"] + ["interleaved", "zb-v"] * (pp == 2))
        stages = pp * (2 if o["pipeline.schedule"] in ("interleaved", "zb-v") else 1)
        splits = {2: ("0.5,3.5", "1.5,2.5", "3.5,0.5"), 4: ("0.5,1.5,1,1", "1.5,0.5,1.5,0.5", "0.5,2,1,0.5")}
        if rng.random() < 0.5:  # stages begin and end inside layers
            o["pipeline.split"] = rng.choice(splits[stages])
    halves = o.get("pipeline.schedule", "").startswith("zb")
    stage = o["zero.stage"] = rng.randrange(2 if halves else 4)
    if stage == 3:
        o["zero.copy"] = rng.choice(("host", "rank"))
    if stage > 0 and dp * ep * cp >= 4 and (ep == 1 or dp % 2 == 0) and rng.random() < 0.3:
        o["zero.hsdp"] = 2
    o["train.recompute"] = rng.choice(("none", "selective", "full"))
    o["train.micro_batch"] = rng.choice([0] + [m for m in (1, 2, 4) if BATCH // (dp * ep) % m == 0])
    if o.get("zero.copy") != "host" and rng.random() < 0.4:
        o["comm.transport"] = "tcp"
    if rng.random() < 0.25:
        o["comm.progress"] = "thread"
    if rng.random() < 0.25:
        o["checkpoint.async"] = "true"
    return ranks, 2 if rng.random() < 0.25 else 1, o


def draw_model(rng):
    if not args.experts:
        return {}
    return {"moe.capacity_factor": rng.choice((0, 1)), "moe.aux_loss": rng.choice((0, 0.01))}


def named(ranks, launchers, options):
    return f"{ranks} ranks, {launchers} launcher{'s' if launchers > 1 else ''}, " + ", ".join(
        f"{k} {v}" for k, v in options.items())


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def processes(folder):
    """pid: RANK of those with the folder in their arguments; None: no rank."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as f, open(f"/proc/{pid}/environ", "rb") as e:
                if folder in f.read():
                    rank = re.search(rb"(?:^|\0)RANK=(\d+)", e.read())
                    found[int(pid)] = int(rank[1]) if rank else None
        except OSError:
            pass
    return found


def belongs_to(folder):
    """Processes with the folder in their arguments, and shared memory of this program."""
    shared = {f"/dev/shm/{n}" for n in os.listdir("/dev/shm") if n.startswith("lockstep")}
    return {f"process {pid}" for pid in processes(folder)} | shared


class Job:
    """The launchers of a training in a folder."""

    def __init__(self, folder, ranks, launchers, options, name):
        train = [args.lockstep, "train", args.recipe, "--run.dir", os.path.join(folder, "run"),
                 "--comm.timeout", str(TIMEOUT_S), "--train.steps", str(STEPS)]
        for key, value in options.items():
            train += [f"--{key}", str(value)]
        port = free_port()
        secret = os.path.join(os.path.dirname(os.path.abspath(args.recipe)), "s")
        self.events = [os.path.join(folder, f"{name}-events{node}") for node in range(launchers)]
        self.out = [os.path.join(folder, f"{name}-out{node}") for node in range(launchers)]
        self.err = [os.path.join(folder, f"{name}-err{node}") for node in range(launchers)]
        self.launcher = []
        for node in range(launchers):
            run = [args.lockstep, "run", "-n", str(ranks // launchers), "--events", self.events[node]]
            if launchers > 1:
                run += ["--nnodes", str(launchers), "--node-rank", str(node), "--master-addr", "127.0.0.1",
                        "--master-port", str(port), "--secret-file", secret]
            with open(self.out[node], "w") as out, open(self.err[node], "w") as err:
                self.launcher.append(subprocess.Popen(run + ["--"] + train, stdout=out, stderr=err))

    def end(self):
        """Waits for all launchers; their exit statuses, or None: one does not end."""
        hang, codes = time.monotonic() + HANG_S, []
        for job in self.launcher:
            try:
                codes.append(job.wait(timeout=max(0.1, hang - time.monotonic())))
            except subprocess.TimeoutExpired:
                for other in self.launcher:
                    other.kill()
                return None
        return codes

    def happened(self, what):
        """Events of a kind, of all launchers."""
        found = []
        for name in filter(os.path.exists, self.events):
            with open(name) as f:
                found += [e for e in (json.loads(line) for line in f if line.endswith("\n")) if e["event"] == what]
        return found

    def text(self, names):
        found = []
        for name in names:
            with open(name) as f:
                found.append(f.read())
        return found

    def reports(self):
        """Per launcher: the first line of its report, and the step that it names as the newest checkpoint."""
        found = []
        for text in self.text(self.err):
            first = [line for line in text.splitlines() if line.startswith("lockstep: error[")]
            saved = re.search(r"^  checkpoint: .*step (\d+)", text, re.M)
            found.append((first[0] if first else text[-300:], int(saved[1]) if saved else 0))
        return found


def losses(folder):
    found = {}
    with open(os.path.join(folder, "run", "metrics.jsonl")) as f:
        for line in f:
            e = json.loads(line)
            if "loss_metrics/global_avg_loss" in e:
                found.setdefault(e["step"], []).append(e["loss_metrics/global_avg_loss"])
    return found


def make_folder():
    return tempfile.mkdtemp(prefix="lockstep-layout-kills-")


alone = {}  # options of the model: losses of one rank


def losses_of_one_rank(model):
    key = tuple(model.items())
    if key not in alone:
        folder = make_folder()
        try:
            job = Job(folder, 1, 1, model, "alone")
            if job.end() != [0]:
                sys.exit(f"one rank: {job.text(job.err)}")
            alone[key] = losses(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return alone[key]


def left(folder, before):
    gone = time.monotonic() + GONE_S
    now = belongs_to(folder) - before
    while now and time.monotonic() < gone:  # other jobs run beside this one: what goes away does not count
        time.sleep(0.05)
        now &= belongs_to(folder)
    return now | {os.path.join(d, n) for d, dirs, files in os.walk(os.path.join(folder, "run")) for n in dirs + files
                  if ".tmp" in n}


def kill_at_instant(job, folder, victim, step, delay):
    """Kills the rank `delay` seconds after the first event of a step; when, or None: the run has ended."""
    pid = None
    while all(p.poll() is None for p in job.launcher):
        if pid is None:
            pid = next((p for p, rank in processes(folder).items() if rank == victim), None)
        if pid and any(e["step"] >= step for e in job.happened("step")):
            time.sleep(delay)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return None
            return time.monotonic_ns()
        time.sleep(0.001)
    return None


class Run:
    """One layout that a rank's death ends, and another that goes on."""

    def __init__(self, seed):
        rng = random.Random(seed)
        self.model = draw_model(rng)
        self.ranks, self.launchers, self.options = draw(rng)
        self.victim, self.step = rng.randrange(self.ranks), rng.randint(1, STEPS)
        self.every = rng.choice((1, 1, 2))
        self.instant = rng.random() < 0.5
        self.delay = rng.uniform(0, 0.01)
        self.then = draw(rng)
        while self.then[2] == self.options:
            self.then = draw(rng)
        self.wrong, self.killed_s, self.noticed_s, self.resumed = [], 0.0, 0.0, None
        how = f"rank {self.victim} killed {'at an instant of' if self.instant else 'in'} step {self.step}"
        self.name = f"{named(self.ranks, self.launchers, self.options | self.model)}, save every {self.every}: {how}"

    def kill(self, folder):
        """Launchers that ended after the death, or None: the run had ended before."""
        options = self.options | self.model | {"checkpoint.every": self.every}
        if not self.instant:
            options["inject"] = f"kill@{self.victim}:{self.step}"
        job = Job(folder, self.ranks, self.launchers, options, "killed")
        died = kill_at_instant(job, folder, self.victim, self.step, self.delay) if self.instant else None
        codes = job.end()
        ended = time.monotonic_ns()
        if self.instant and codes is not None and not any(codes):
            return None
        if codes is None:
            self.wrong.append(f"a launcher does not end within {HANG_S} s")
        elif codes != [DIED] * self.launchers:
            self.wrong.append(f"exit status {codes}, expected {DIED}")
        seen = min((e["t_ns"] for e in job.happened("detect")), default=None)
        if seen is None:
            self.wrong.append("no launcher has an event `detect`")
        else:
            self.noticed_s = (seen - died) / 1e9 if died else 0.0
            self.killed_s = (ended - (died or seen)) / 1e9
        if self.noticed_s > NOTICED_S or self.killed_s > ENDED_S:
            self.wrong.append(f"noticed after {self.noticed_s:.2f} s, ended after {self.killed_s:.2f} s")
        return job

    def check_report(self, job):
        step = r"\d+" if self.instant else self.step
        want = re.compile(rf"lockstep: error\[rank-died\] gen=1 step={step} rank={self.victim} "
                          r".*was killed by signal 9 \(SIGKILL\)")
        for i, (first, _) in enumerate(job.reports()):
            if not want.match(first):
                self.wrong.append(f"launcher {i} reports '{first}'")

    def check_checkpoint(self, job, folder):
        """The newest complete one is as new as the report says, and as the steps before the death demand."""
        paths = glob.glob(os.path.join(folder, "run", "checkpoints", "step-*"))
        saved = max((int(p[-8:]) for p in paths), default=0)
        told = max(step for _, step in job.reports())
        if saved < told:
            self.wrong.append(f"the report names the checkpoint of step {told}, the newest is of step {saved}")
        want = (self.step - 1) // self.every * self.every
        if not self.instant and "checkpoint.async" not in self.options and saved != want:
            self.wrong.append(f"the newest checkpoint is of step {saved}, expected {want}")
        return saved

    def resume(self, folder, saved):
        ranks, launchers, options = self.then
        self.name += f"; then {named(*self.then)}"
        job = Job(folder, ranks, launchers, options | self.model | {"checkpoint.resume": "auto"}, "resumed")
        codes = job.end()
        if codes != [0] * launchers:
            self.wrong.append(f"resuming ends with {codes}: {job.text(job.err)}")
            return
        if not any(re.search(rf"^resuming step {saved} of ", text, re.M) for text in job.text(job.out)):
            self.wrong.append(f"it does not resume step {saved}: {job.text(job.out)[0][:300]}")
        self.resumed = saved
        want, got = losses_of_one_rank(self.model), losses(folder)
        if sorted(got) != list(range(1, STEPS + 1)) or any(len(x) > 1 for x in got.values()):
            self.wrong.append(f"metrics of steps {sorted(got)}, expected 1 to {STEPS}, each once")
            return
        for step, (loss,) in sorted(got.items()):
            apart = abs(loss / want[step][0] - 1)
            if not apart <= LOSS:
                self.wrong.append(f"the loss of step {step} is {loss}, of one rank {want[step][0]}: {apart:.2g} apart")

    def go(self):
        for _ in range(MOST_TRIES):
            folder = make_folder()
            try:
                before = belongs_to(folder)
                job = self.kill(folder)
                if job is None:  # it was over before: an earlier instant
                    self.step = max(1, self.step - 2)
                    continue
                self.check_report(job)
                self.wrong += [f"left: {x}" for x in sorted(left(folder, before))]
                saved = self.check_checkpoint(job, folder)
                if saved:
                    self.resume(folder, saved)
                    self.wrong += [f"left after resuming: {x}" for x in sorted(left(folder, before))]
                return
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        self.wrong.append(f"{MOST_TRIES} runs ended before their instant")


def main():
    failed, instants, resumed, noticed, killed = 0, 0, 0, 0.0, 0.0
    for seed in range(args.seed, args.seed + args.runs):
        run = Run(seed)
        run.go()
        failed += bool(run.wrong)
        instants += run.instant
        resumed += run.resumed is not None
        noticed, killed = max(noticed, run.noticed_s), max(killed, run.killed_s)
        if args.verbose:
            print(f"seed {seed}: {run.name}; noticed {run.noticed_s:.3f} s, ended {run.killed_s:.3f} s", flush=True)
        for text in run.wrong:
            print(f"seed {seed}: {run.name}: {text}", flush=True)
    print(f"{args.runs - failed} of {args.runs} layouts from seed {args.seed} on, {instants} killed at an instant, "
          f"{resumed} resumed by another layout: all as expected; noticed after {noticed:.3f} s, ended after "
          f"{killed:.3f} s at most")
    return 1 if failed else 0


sys.exit(main())
