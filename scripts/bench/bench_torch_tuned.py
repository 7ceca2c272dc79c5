"""Programs of others tuned by `dltune tune`, and what it brings by their own clocks.

    PYTHONPATH=. python scripts/bench/bench_torch_tuned.py FOLDER [NAME...] [--budget 10m]
        [--pairs 6]

The programs of bench_torch_programs.py, in the same environments. Each is tuned; then those that
tell how fast they are, as they are and under `dltune run` with the plan, take turns, each in a
process of its own, timed by nothing but what it prints. What is in FOLDER already is not measured
again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import time
import tomllib
from pathlib import Path
from statistics import median

from bench_torch_programs import DLTUNE, PROGRAMS, called, command, environment

from dltune.plan.plan import load_plan
from dltune.schemas.settings import Measured, SettingsPlan
from dltune.stats import Interval, paired_ratio

SILENT = 120.0  # seconds in which a program must have told its speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--budget", default="10m", help="of a search, as `dltune tune` takes it")
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15.0, help="that a program is listened to")
    options = parser.parse_args()
    print("| program | chosen | told by tune | by its own clock |")
    print("|---|---|---|---|")
    for program in tomllib.loads((PROGRAMS / "programs.toml").read_text())["program"]:
        if options.names and program["name"] not in options.names:
            continue
        folder = options.folder.resolve() / program["name"]
        job = command(program, folder, environment(folder, program))
        plan, turns = folder / "tuned.plan.json", folder / "tuned.turns.json"
        if not plan.exists():
            called(*DLTUNE, "tune", "--budget", options.budget, "-o", plan, "--", *job, at=folder)
        section = load_plan(plan).of(SettingsPlan)
        assert section is not None
        if "clock" in program and not turns.exists():
            tuned = [*DLTUNE, "run", "--plan", str(plan), "--", *job]
            clock = re.compile(program["clock"], re.MULTILINE)
            pairs = [
                [told(one, folder, clock, options.seconds) for one in (tuned, job)]
                for _ in range(options.pairs)
            ]
            turns.write_text(json.dumps(pairs))
        own = paired_ratio(json.loads(turns.read_text())) if "clock" in program else None
        chosen = ", ".join(map(str, section.chosen)) or "nothing"
        row = (program["name"], chosen, ratio(section.whole), ratio(own))
        print(f"| {' | '.join(row)} |", flush=True)


def told(job: list[str], folder: Path, clock: re.Pattern[str], seconds: float) -> float:
    """What one of the program's steps takes, in its own unit of time and by its own clock: the
    median of what it prints in so many seconds, the first half left out."""
    log = folder / "tuned.log"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            job, cwd=folder, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        began = time.monotonic()
        while not (readings := read(log, clock)):
            if process.poll() is not None or time.monotonic() - began > SILENT:
                raise SystemExit(f"{log}: the program has not told how fast it is")
            time.sleep(0.2)
        time.sleep(seconds)
        readings = read(log, clock)
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()
    return median(readings[len(readings) // 2 :])


def read(log: Path, clock: re.Pattern[str]) -> list[float]:
    lines = log.read_text(errors="replace").replace("\r", "\n")
    return [
        1 / float(one["rate"]) if "rate" in clock.groupindex else float(one["seconds"])
        for one in clock.finditer(lines)
    ]


def ratio(found: Measured | Interval | None) -> str:
    if found is None:
        return "-"
    middle = found.ratio if isinstance(found, Measured) else found.median
    if found.low is None or found.high is None:
        return f"{middle:.3f}"
    return f"{middle:.3f} ({found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    main()
