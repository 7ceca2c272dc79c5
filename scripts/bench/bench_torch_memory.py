"""Results given up in PyTorch jobs: are peaks as planned, losses the same, and what does it cost?

    PYTHONPATH=. python scripts/bench/bench_torch_memory.py [resnet50 transformer densenet121]
                                                      [--python .venv-torch/bin/python]
                                                      [--compiled-by BACKEND]
                                                      [--beside-mode-of BACKEND]

Each bundled job is profiled once, planned for some budgets between the least and none, and run
under each plan, in turns with the job as it is. Its own clock counts, without the first steps.
Its model may be compiled, which is then planned for as such, by a part of what is kept.
Beside PyTorch's own budget mode, budgets are the peaks that this reaches, and turns are with it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MODE = Path(__file__).with_name("torch_budget_mode.py")
DLTUNE = (sys.executable, "-m", "dltune")
JOBS = {"resnet50": 16, "transformer": 32, "densenet121": 16}  # with examples a step
PARTS = (1.0, 0.75, 0.5, 0.25, 0.0)  # of what can be saved, left
WARM = 8  # steps, in which PyTorch's own mode compiles, and a profiler listens
MIB = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="*", default=[*JOBS])
    parser.add_argument("--python", default=str(ROOT / ".venv-torch" / "bin" / "python"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--parts", type=float, nargs="*", default=PARTS, help="as PARTS")
    parser.add_argument("--compiled-by", metavar="BACKEND", help="as that of --beside-mode-of")
    parser.add_argument(
        "--beside-mode-of", metavar="BACKEND", help="inductor, or aot_eager_decomp_partition"
    )
    options = parser.parse_args()
    backend = options.beside_mode_of
    if backend:
        print("| job | mode's budget | its peak MiB | dltune's | mode over eager "
              "| dltune over eager | dltune over mode |")  # fmt: skip
        print("|---|---|---|---|---|---|---|")
    else:
        print("| job | budget MiB | planned | measured | apart | given up, or kept "
              "| added as planned | measured | losses |")  # fmt: skip
        print("|---|---|---|---|---|---|---|---|---|")
    for name in options.jobs:
        script = ROOT / "scripts" / "examples" / f"train_torch_{name}.py"
        job = [options.python, str(script), "--batch", str(JOBS[name]), "--log-every", "1"]
        if options.compiled_by:
            job[1:1] = [str(MODE), "1", options.compiled_by, "-"]
        with tempfile.TemporaryDirectory(prefix="dltune-") as folder:
            given = (name, job, Path(folder), options.steps, options.turns, options.parts)
            beside_budget_mode(*given, backend) if backend else compare(*given)


def compare(
    name: str, job: list[str], folder: Path, steps: int, turns: int, parts: Iterable[float]
) -> None:
    profile = profiled(job, folder)
    least = planned(profile, folder / "least.json")
    for part in parts:
        plan = folder / f"plan-{part}.json"
        more = part * (least["before"] - least["peak"])
        budget = round(least["live"] + least["peak"] + more)
        section = planned(profile, plan, budget)
        measured = 0
        ratios = []
        same = True
        for _ in range(turns):
            plain, alone = run([], job, folder, steps)
            slower, losses, seen = under(plan, job, folder, steps)
            ratios.append(slower / plain)
            same &= losses == alone
            measured = max(measured, seen)
        peak = section["live"] + section["peak"]
        added = (section["added"] + section["hooks"]) / section["seconds"]
        given_up = section.get("compiled") or len(section["given_up"])
        spread = f"{min(ratios) - 1:.1%} to {max(ratios) - 1:.1%}"
        print(f"| {name} | {budget / MIB:.1f} | {peak / MIB:.1f} | {measured / MIB:.1f} "
              f"| {measured / peak - 1:+.2%} | {given_up} | {added:.1%} "
              f"| {statistics.median(ratios) - 1:.1%} ({spread}) "
              f"| {'the same' if same else 'OTHERS'} |", flush=True)  # fmt: skip


def beside_budget_mode(
    name: str,
    job: list[str],
    folder: Path,
    steps: int,
    turns: int,
    parts: Iterable[float],
    backend: str,
) -> None:
    profile, told = profiled(job, folder), folder / "peak"
    least = planned(profile, folder / "least.json")

    def mode(budget: float | str) -> float:
        """Seconds of a step; `told` has the peak."""
        python, script, *arguments = job
        wrapped = [python, str(MODE), str(budget), backend, str(told), script, *arguments]
        return run([], wrapped, folder, steps)[0]

    mode("eager")
    # what the mode's peak leaves out
    before = least["live"] + least["before"] - int(told.read_text())
    for part in parts:
        mode(part)
        budget, plan = before + int(told.read_text()), folder / f"plan-{part}.json"
        its = f"{part} | {budget / MIB:.1f}"
        lowest = least["live"] + least["peak"]
        if budget < lowest:
            print(f"| {name} | {its} | least {lowest / MIB:.1f} | | | |")
            continue
        planned(profile, plan, budget)
        rounds, peaks = [], []
        for _ in range(turns):
            slower, _, peak = under(plan, job, folder, steps)
            peaks.append(peak)
            rounds.append((run([], job, folder, steps)[0], mode(part), slower))
        ratios = (
            [theirs / eager for eager, theirs, _ in rounds],
            [ours / eager for eager, _, ours in rounds],
            [ours / theirs for _, theirs, ours in rounds],
        )
        cells = (f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for r in ratios)
        print(f"| {name} | {its} | {max(peaks) / MIB:.1f} | {' | '.join(cells)} |", flush=True)


def profiled(job: list[str], folder: Path) -> Path:
    path = folder / "profile.json"
    command = [*DLTUNE, "profile", "-o", str(path), "--", *job, "--steps", "1000000"]
    subprocess.run(command, check=True, capture_output=True)
    return path


def planned(profile: Path, plan: Path, budget: int | None = None) -> dict[str, Any]:
    """The section of a plan for so many bytes, or as few as can be."""
    wanted = ["--smallest"] if budget is None else ["--budget", f"{budget}B"]
    command = [*DLTUNE, "plan", "memory", str(profile), *wanted, "-o", str(plan)]
    subprocess.run(command, check=True, capture_output=True)
    section: dict[str, Any] = json.loads(plan.read_text())["sections"]["memory"]
    return section


def under(plan: Path, job: list[str], folder: Path, steps: int) -> tuple[float, str, int]:
    """As `run`, and the peak in bytes."""
    outcome = folder / "outcome.json"
    with_plan = [*DLTUNE, "run", "--plan", str(plan), "--json", str(outcome), "--overwrite", "--"]
    seconds, losses = run(with_plan, job, folder, steps)
    processes = json.loads(outcome.read_text())["sections"]["memory"]["processes"]
    return seconds, losses, max(one["peak"] for one in processes)


def run(under: list[str], job: list[str], folder: Path, steps: int) -> tuple[float, str]:
    """Seconds of a step, and all losses."""
    losses = folder / "losses"
    command = [*under, *job, "--steps", str(steps + WARM), "--losses", str(losses)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ends = [float(one) for one in re.findall(r"^step \d+ .* ([\d.]+) s$", done.stdout, re.M)]
    return (ends[-1] - ends[WARM - 1]) / steps, losses.read_text()


if __name__ == "__main__":
    main()
