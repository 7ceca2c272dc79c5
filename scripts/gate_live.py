"""Live gates of unchanged code and of slowdowns put into it: what the verdicts are.

    python scripts/gate_live.py [--seconds 170] [--kind steps|whole] [--gates 20]

Makes a project under git in a temporary folder and calls the gate on it, kind after kind of change,
until the seconds are over: no change, +5 % and +10 % (a sleep of so much of each step).
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from dltune.gate.ab import ab
from dltune.gate.config import Config
from dltune.machine import topology

JOBS = Path(__file__).parent.parent / "tests" / "jobs"
CHANGES = {"unchanged": 0.0, "slower by 10 %": 0.10, "slower by 5 %": 0.05}
WHOLE = """
import time
for _ in range(40):
    began = time.perf_counter()
    sum(i * i for i in range(40_000))
    time.sleep({share} * (time.perf_counter() - began))
"""
STEP = "        record(train_step(*batch))\n"
SLOWED = (
    "        began = time.perf_counter()\n"
    "        record(train_step(*batch).numpy())\n"
    "        time.sleep({share} * (time.perf_counter() - began))\n"
)


def write(project: Path, kind: str, share: float) -> None:
    if kind == "whole":
        (project / "job.py").write_text(WHOLE.format(share=share))
        return
    for name in ("small_model.py", "arguments.py"):
        shutil.copy(JOBS / name, project)
    job = (JOBS / "gradient_tape.py").read_text()
    assert STEP in job
    job = job.replace(STEP, SLOWED.format(share=share))
    (project / "job.py").write_text(f"import time\n{job}")


def commit(project: Path, share: float) -> None:
    git = ["git", "-c", "user.name=gate", "-c", "user.email=gate@localhost", "-C", str(project)]
    subprocess.run([*git, "add", "."], check=True)
    message = f"a share of {share}"
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=170.0, help="begin no gate after these")
    parser.add_argument("--kind", choices=("whole", "steps"), default="whole")
    parser.add_argument("--gates", type=int, default=20, help="of each change")
    parser.add_argument("--budget", type=float, default=Config().budget)
    parser.add_argument("--turns", type=int, default=Config().rounds_per_launch)
    parser.add_argument("--changes", default=",".join(CHANGES))
    args = parser.parse_args()
    began = time.monotonic()
    found: dict[str, list[str]] = defaultdict(list)
    config = dataclasses.replace(Config(), budget=args.budget, rounds_per_launch=args.turns)
    for number in range(args.gates):
        for name in args.changes.split(","):
            if time.monotonic() - began > args.seconds:
                return
            with tempfile.TemporaryDirectory() as folder:
                project = Path(folder)
                subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
                for share in (0.0, CHANGES[name]):
                    write(project, args.kind, share)
                    commit(project, share)
                command = [sys.executable, "job.py"]
                result, made = ab(
                    project, "HEAD~1", command, config, topology.local(), tell=lambda _: None
                )
            found[name].append(result.outcome)
            verdict = result.verdicts[0]
            print(
                f"{number + 1} {name}: {result.outcome} in {result.seconds:.0f} s, {made.rounds} "
                f"rounds, ratio {verdict.median:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
