"""Results given up in PyTorch jobs: are peaks as planned, losses the same, and what does it cost?

    PYTHONPATH=. python scripts/bench_torch_memory.py [resnet50 transformer densenet121]
                                                      [--python .venv-torch/bin/python]

Each bundled job is profiled once, planned for some budgets between the least and none, and run
under each plan, in turns with the job as it is. Its own clock counts, without the first steps.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from dltune.documents import profile as profiles
from dltune.planners.memory.decide import decide

ROOT = Path(__file__).parent.parent
DLTUNE = (sys.executable, "-m", "dltune")
JOBS = {"resnet50": 16, "transformer": 32, "densenet121": 16}  # with examples a step
PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of what can be saved, left
WARM = 4  # steps
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", default=[*JOBS])
    parser.add_argument("--python", default=str(ROOT / ".venv-torch" / "bin" / "python"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    print("| job | budget MiB | planned | measured | apart | given up | added as planned "
          "| measured | losses |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.jobs:
        script = ROOT / "scripts" / f"train_torch_{name}.py"
        job = [options.python, str(script), "--batch", str(JOBS[name]), "--log-every", "1"]
        with tempfile.TemporaryDirectory(prefix="dltune-") as folder:
            compare(name, job, Path(folder), options.steps, options.turns)


def compare(name: str, job: list[str], folder: Path, steps: int, turns: int) -> None:
    profile = folder / "profile.json"
    command = [*DLTUNE, "profile", "-o", str(profile), "--", *job, "--steps", "1000000"]
    subprocess.run(command, check=True, capture_output=True)
    least = decide(profiles.load(profile)).section
    for part in PARTS:
        plan = folder / f"plan-{part}.json"
        budget = round(least.live + least.peak + part * (least.before - least.peak))
        command = [*DLTUNE, "plan", "memory", str(profile), "--budget", f"{budget}B"]
        subprocess.run([*command, "-o", str(plan)], check=True, capture_output=True)
        section = json.loads(plan.read_text())["sections"]["memory"]
        measured = 0
        ratios = []
        same = True
        for _ in range(turns):
            plain, alone = run([], job, folder, steps)
            outcome = folder / "outcome.json"
            under = [*DLTUNE, "run", "--plan", str(plan), "--json", str(outcome), "--overwrite"]
            slower, losses = run([*under, "--"], job, folder, steps)
            ratios.append(slower / plain)
            same &= losses == alone
            processes = json.loads(outcome.read_text())["sections"]["memory"]["processes"]
            measured = max(measured, *(one["peak"] for one in processes))
        planned = section["live"] + section["peak"]
        added = section["added"] / section["seconds"]
        spread = f"{min(ratios) - 1:.1%} to {max(ratios) - 1:.1%}"
        print(f"| {name} | {budget / MIB:.1f} | {planned / MIB:.1f} | {measured / MIB:.1f} "
              f"| {measured / planned - 1:+.2%} | {len(section['given_up'])} | {added:.1%} "
              f"| {statistics.median(ratios) - 1:.1%} ({spread}) "
              f"| {'the same' if same else 'OTHERS'} |", flush=True)  # fmt: skip


def run(under: list[str], job: list[str], folder: Path, steps: int) -> tuple[float, str]:
    """Seconds of a step, and all losses."""
    losses = folder / "losses"
    command = [*under, *job, "--steps", str(steps + WARM), "--losses", str(losses)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ends = [float(one) for one in re.findall(r"^step \d+ .* ([\d.]+) s$", done.stdout, re.M)]
    return (ends[-1] - ends[WARM - 1]) / steps, losses.read_text()


if __name__ == "__main__":
    main()
