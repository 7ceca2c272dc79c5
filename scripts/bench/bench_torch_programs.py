"""Programs of others that train in PyTorch (programs/): profiled, planned for, and run.

    PYTHONPATH=. python scripts/bench/bench_torch_programs.py FOLDER [NAME...] [--rounds 12]

Each has an environment of its own in FOLDER. Its plan takes turns with the program as it is and
with each number of threads that a sweep would try; and once more where it asks for 64 threads. What
is in FOLDER already is not measured again; a table of it all is printed. Exit code 1 where a plan
is slower by more than 1 % than the best of the sweep, or less than 1.5 times as fast as the program
with 64 threads, beyond doubt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from dltune.schemas import bench as benches
from dltune.schemas.bench import Bench
from dltune.stats import Interval, paired_ratio
from dltune.system import topology

PROGRAMS = Path(__file__).parent / "programs"
TORCH = "2.13.0+cpu"
MANY = 64  # threads
SLOWER, FASTER = 1.01, 1.5  # times
DLTUNE = (sys.executable, "-m", "dltune")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    programs = tomllib.loads((PROGRAMS / "programs.toml").read_text())["program"]
    failed = False
    many = f"told {MANY} threads"
    print(f"| program | step ms | plan | over the best of a sweep | over as it is | {many} |")
    print("|---|---|---|---|---|---|")
    for program in programs:
        if options.names and program["name"] not in options.names:
            continue
        folder = options.folder.resolve() / program["name"]
        try:
            bin_folder = environment(folder, program)
            text, good = row(program, folder, bin_folder, options.rounds)
            failed |= not good
            print(text, flush=True)
        except subprocess.CalledProcessError as error:
            failed = True
            why = (error.stderr or "").strip().splitlines()[-1:] or [str(error)]
            print(f"| {program['name']} | {why[0]} |", flush=True)
    sys.exit(failed)


def environment(folder: Path, program: dict[str, Any]) -> Path:
    """Its folder of programs; installed once."""
    packages = (f"torch=={program.get('torch', TORCH)}", *program["packages"])
    at = folder / "environment"
    if not (at / ".installed").exists():
        called(sys.executable, "-m", "venv", at)
        called(at / "bin" / "python", "-m", "pip", "--quiet", "install", *packages)
        (at / ".installed").touch()
    return at / "bin"


def row(program: dict[str, Any], folder: Path, bin_folder: Path, rounds: int) -> tuple[str, bool]:
    """Of the table, and whether the plan is as good as it must be."""
    job = command(program, folder, bin_folder)
    told = [job[0], str(PROGRAMS / "told_threads.py"), str(MANY), *job[1:]]
    sweep = {n: f"{n}x1" for n in (1, len(topology.local().cores))}
    found = measured(folder, "own", job, ("as-found", *sweep.values(), "plan"), rounds)
    many = measured(folder, "many", told, ("as-found", "plan"), rounds)
    step = {one.name: one.summary.step.median for one in found.settings if one.summary}
    best = min(sweep.values(), key=lambda name: step[name])
    over = (
        ratio(found, "plan", best),
        ratio(found, "plan", "as-found"),
        ratio(many, "plan", "as-found"),
    )
    figures = (f"{one.median:.3f} ({one.low:.3f} to {one.high:.3f})" for one in over)
    strategy = found.strategy.removeprefix("uniform ")
    text = f"| {program['name']} | {step['own'] * 1e3:.3g} | {strategy} | {' | '.join(figures)} |"
    return text, over[0].low <= SLOWER and over[2].low <= 1 / FASTER


def command(program: dict[str, Any], folder: Path, bin_folder: Path) -> list[str]:
    """By which it is started in `folder`, where its data are made first."""
    if "data" in program:
        called(bin_folder / "python", PROGRAMS / program["data"], at=folder)
    first, *rest = program["command"]
    arguments = [str(PROGRAMS / one) if (PROGRAMS / one).is_file() else one for one in rest]
    start = [] if first == "python" else [str(bin_folder / first)]
    return [str(bin_folder / "python"), *start, *arguments]


def measured(
    folder: Path, kind: str, job: list[str], against: tuple[str, ...], rounds: int
) -> Bench:
    profile, plan, bench = (folder / f"{kind}.{what}.json" for what in ("profile", "plan", "bench"))
    if not bench.exists():
        called(*DLTUNE, "profile", "--overwrite", "-o", profile, "--", *job, at=folder)
        called(*DLTUNE, "plan", profile, "--overwrite", "-o", plan)
        names = ("--against", ",".join(against), "--no-one-core", "--rounds", rounds)
        turn = ("--seconds-per-turn", 1)
        files = ("--plan", plan, "-o", bench)
        called(*DLTUNE, "bench", *names, *turn, *files, "--", *job, at=folder)
    return benches.load(bench)


def ratio(bench: Bench, name: str, reference: str) -> Interval:
    """Of medians of turns in the same rounds."""
    turns = {one.name: {turn.round: turn.median for turn in one.turns} for one in bench.settings}
    both = turns[name].keys() & turns[reference].keys()
    return paired_ratio([(turns[name][at], turns[reference][at]) for at in both])


def called(*command: object, at: Path | None = None) -> None:
    subprocess.run(
        [str(part) for part in command],
        cwd=at,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=900,
    )


if __name__ == "__main__":
    main()
