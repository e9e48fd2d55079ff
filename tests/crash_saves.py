"""crash_saves.py -- ends a training at each system call by which it changes files, and makes each of these calls fail:
afterwards a whole checkpoint is there, and the run goes on to the undisturbed end.

    python3 tests/crash_saves.py LOCKSTEP --ranks 2 --rank 1 [--error ENOSPC] [--stride 1]

strace sees the calls of one rank. The n-th one is where SIGKILL comes, or returns an error, for every n. The checkpoint
that was announced as durable before must not be lost. Exit status 1 if one was, or a run could not go on.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

a = argparse.ArgumentParser()
a.add_argument("lockstep")
a.add_argument("--recipe", default="gpt.yaml")
a.add_argument("--ranks", type=int, default=2)
a.add_argument("--rank", type=int, default=0)
a.add_argument("--stage", type=int, default=0)
a.add_argument("--error", default="", help="errno of the call; default: the rank is killed there")
a.add_argument("--stride", type=int, default=1)
a.add_argument("--option", action="append", default=[], help="of the training, for example --checkpoint.async=true")
args = a.parse_args()

CALLS = ["mkdir", "mkdirat", "openat", "openat2", "write", "pwrite64", "writev", "pwritev", "fallocate", "ftruncate", "fsync",
         "fdatasync", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "close"]
FAIL = [c for c in CALLS if c != "close"]  # whose error says that nothing more can be done


def command(folder, prefix):
    run = [args.lockstep, "run", "-n", str(args.ranks), "--events", os.path.join(folder, "events")]
    if prefix:
        run += ["--prefix-rank", str(args.rank), prefix]
    return run + ["--", args.lockstep, "train", args.recipe, "--run.dir", os.path.join(folder, "run"), "--checkpoint.resume", "auto",
                  "--checkpoint.every", "2", "--train.steps", "6", "--zero.stage", str(args.stage)] + args.option


def run(folder, prefix=""):
    p = subprocess.run(command(folder, prefix), capture_output=True, text=True, timeout=120)
    lines = p.stdout.splitlines()
    return p.returncode, lines[-1] if lines else "", p.stderr


def durable(folder):
    """The newest step that an event calls durable; 0: none."""
    try:
        with open(os.path.join(folder, "events")) as f:
            events = [json.loads(x) for x in f if x.endswith("\n")]
    except FileNotFoundError:
        return 0
    return max([e["step"] for e in events if e["event"] == "ckpt_durable"], default=0)


def steps(folder):
    """Steps of the checkpoints that are whole."""
    whole = []
    path = os.path.join(folder, "run", "checkpoints")
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else []:
        if re.fullmatch(r"step-\d{8}", name):
            ok = subprocess.run([args.lockstep, "ckpt", "verify", os.path.join(path, name)], capture_output=True).returncode == 0
            whole += [int(name[5:])] if ok else []
    return whole


def fresh():
    return tempfile.mkdtemp(prefix="lockstep-crash-")


def count(want):
    """How many calls there are from the first to the last one."""
    folder = fresh()
    log = os.path.join(folder, "trace")
    code, last, err = run(folder, f"strace -f -qq -o {log} -e trace={','.join(CALLS)}")
    if code or last != want:
        sys.exit(f"under strace: {code} '{last}'\n{err}")
    with open(log) as f:
        lines = [x for x in f if re.match(r"\d+\s+(" + "|".join(CALLS) + r")\(", x)]
    shutil.rmtree(folder)
    return numbered(lines)


def inject(call, nth):
    """strace counts the calls of each name and thread by themselves."""
    how = f"error={args.error}" if args.error else "signal=SIGKILL"
    return f"strace -f -qq -o /dev/null -e trace={call} -e inject={call}:{how}:when={nth}"


def numbered(lines):
    """(name, its number among the calls of that name and thread, the line)"""
    seen, out = {}, []
    for line in lines:
        pid, name = re.match(r"(\d+)\s+(\w+)\(", line).groups()
        seen[pid, name] = seen.get((pid, name), 0) + 1
        out.append((name, seen[pid, name], line))
    return out


def main():
    folder = fresh()
    code, want, err = run(folder)
    shutil.rmtree(folder)
    if code:
        sys.exit(f"the undisturbed run ends with {code}\n{err}")
    calls = [c for c in count(want) if c[0] in (FAIL if args.error else CALLS)]
    # before the run has its folder there is nothing to lose: begin where that is made
    first = next(i for i, c in enumerate(calls) if c[0].startswith("mkdir") and "run" in c[2]) if args.rank == 0 else 0
    tried, bad, ended = 0, 0, {}
    for name, nth, line in calls[first::args.stride]:
        tried += 1
        folder = fresh()
        code, last, err = run(folder, inject(name, nth))
        ended[code] = ended.get(code, 0) + 1
        had, whole = durable(folder), steps(folder)
        why = ""
        if had and had not in whole and not any(s > had for s in whole):
            why = f"step {had} was durable, and the whole ones are {whole}"
        elif code == 0 and last != want:
            why = f"ends well with '{last}'"
        elif code != 0:
            again, last, err = run(folder)
            if again or last != want:
                why = f"goes on with {again} '{last}'"
        if why:
            bad += 1
            print(f"{name} {nth} ({line.strip()[:120]}): exit status {code}; {why}\n{err[-2000:]}", flush=True)
        shutil.rmtree(folder)
    what = f"{args.error} at" if args.error else "killed at"
    print(f"{args.ranks} ranks, stage {args.stage}, rank {args.rank} {what} each of {tried} calls: {tried - bad} of {tried} go on to the same end; "
          f"exit statuses {dict(sorted(ended.items()))}")
    return 1 if bad else 0


sys.exit(main())
