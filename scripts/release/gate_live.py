"""Live gates: of unchanged code, of harmless edits and of slowdowns put in; what the verdicts are.

    python scripts/release/gate_live.py FILE [--kind steps|whole] [--times 8] [--neighbour]
                                        [--seconds 3600] [--launches FOLDER]
    python scripts/release/gate_live.py FILE --tell

Makes a project under git in a temporary folder and calls the gate on it with its default
configuration, change after change in turns, until each has been gated so many times or the seconds
are over. Each gate adds a line of JSON to FILE, and what is there already is not done again.
`--neighbour`: with another process that computes on one core meanwhile. `--launches`: the steps of
each gate are kept in FOLDER, for each change a recording for gate_power.py. `--tell` prints the
counts.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dltune.gate.comparison import ab
from dltune.gate.limits import Config
from dltune.gate.measurement import Measurement
from dltune.system import topology

sys.path.append(str(Path(__file__).parents[2] / "tests" / "gate"))

import resampled

JOBS = Path(__file__).parents[2] / "tests" / "jobs"
# what is slept of each step beside what it takes, and what the verdict must not be
CHANGES = {
    "unchanged": (0.0, "fail"),
    "harmless edit": (0.0, "fail"),
    "slower by 5 %": (0.05, "pass"),
    "slower by 10 %": (0.10, "pass"),
}
HARMLESS = "def unused(a, b):\n    return [a, b] * 1000\n\n\nNAMES = tuple(map(str, range(500)))\n"
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


def write(project: Path, kind: str, share: float, before: str = "") -> None:
    if kind == "whole":
        (project / "job.py").write_text(before + WHOLE.format(share=share))
        return
    for name in ("small_model.py", "arguments.py"):
        shutil.copy(JOBS / name, project)
    job = (JOBS / "gradient_tape.py").read_text()
    assert STEP in job
    job = job.replace(STEP, SLOWED.format(share=share))
    (project / "job.py").write_text(f"import time\n{before}{job}")


def commit(project: Path, message: str) -> None:
    git = ["git", "-c", "user.name=gate", "-c", "user.email=gate@localhost", "-C", str(project)]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)


def gate(kind: str, change: str, *, neighbour: bool, keep: Path | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
        write(project, kind, 0.0)
        commit(project, "base")
        write(project, kind, CHANGES[change][0], HARMLESS if change == "harmless edit" else "")
        commit(project, change)
        command = [sys.executable, "job.py"]
        with busy() if neighbour else contextlib.nullcontext():
            result, made = ab(
                project, "HEAD~1", command, Config(), topology.local(), tell=lambda _: None
            )
    (verdict,) = result.verdicts
    if keep:
        record(keep, change, made)
    return {
        "kind": kind,
        "change": change,
        "neighbour": neighbour,
        "outcome": result.outcome,
        "seconds": round(result.seconds),
        "rounds": made.rounds,
        "ratio": [verdict.median, verdict.low, verdict.high],
        "slower": [f"{one.kind} {one.what}" for one in result.slower],
        "notes": result.notes,
    }


def record(folder: Path, change: str, made: Measurement) -> None:
    """Add the gate's launches to those of the same change in FOLDER."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{change.replace(' ', '-')}.json.gz"
    before = json.loads(gzip.decompress(path.read_bytes()))["launches"] if path.exists() else []
    launches = [
        dict(zip(made.steps, map(in_microseconds, both), strict=True))
        for both in zip(*made.steps.values(), strict=True)
    ]
    write_recording(path, f"live gates: {change}", before + launches)


def in_microseconds(turns: Sequence[Sequence[float]]) -> list[list[int]]:
    """The steps of a launch's turns, as recordings have them."""
    return [[round(step * 1e6) for step in turn] for turn in turns]


def write_recording(path: Path, about: str, launches: Sequence[dict[str, list[list[int]]]]) -> None:
    """What gate_power.py reads."""
    data = {"about": about, "launches": launches}
    path.write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))


@contextlib.contextmanager
def busy() -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def asked_of(line: dict[str, Any]) -> tuple[str, bool]:
    return line["kind"], line["neighbour"]


def tell(lines: list[dict[str, Any]]) -> bool:
    """The counts, each with the most that its share of wrong verdicts can be; whether none was."""
    groups: dict[tuple[str, str, bool], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        groups[line["kind"], line["change"], line["neighbour"]].append(line)
    wrong = 0
    for (kind, change, neighbour), gates in groups.items():
        outcomes = Counter(one["outcome"] for one in gates)
        bad = outcomes[CHANGES[change][1]]
        wrong += bad
        seconds = sorted(one["seconds"] for one in gates)
        print(
            f"{kind}, {change}{', beside another process' * neighbour}: "
            + ", ".join(f"{outcomes[name]} {name}" for name in ("pass", "fail", "undecided"))
            + f"; wrong at most {resampled.upper_bound(bad, len(gates)):.0%} (95 %); "
            f"{seconds[0]} to {seconds[-1]} s, median {seconds[len(seconds) // 2]}"
        )
    return wrong == 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--kind", choices=("whole", "steps"), default="steps")
    parser.add_argument("--times", type=int, default=8, help="gates of each change")
    parser.add_argument("--changes", default=",".join(CHANGES))
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no gate after these")
    parser.add_argument("--launches", type=Path, metavar="FOLDER")
    parser.add_argument("--tell", action="store_true")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is started is ended then too
    began, asked = time.monotonic(), (args.kind, args.neighbour)
    for number in range(0 if args.tell else args.times):
        for change in args.changes.split(","):
            if time.monotonic() - began > args.seconds:
                break
            those = [one for one in read(args.file) if one["change"] == change]
            if sum(asked_of(one) == asked for one in those) > number:
                continue
            load = os.getloadavg()[0]
            described = ["git", "-C", str(JOBS), "describe", "--always", "--dirty"]
            revision = subprocess.check_output(described, text=True).strip()
            line = {
                **gate(args.kind, change, neighbour=args.neighbour, keep=args.launches),
                "load": load,
            }
            line["commit"] = revision
            with args.file.open("a") as lines:
                print(json.dumps(line), file=lines)
            print(
                f"{number + 1} {change}: {line['outcome']} in {line['seconds']} s, "
                f"{line['rounds']} rounds, ratio {line['ratio']}, {line['slower']}",
                flush=True,
            )
    sys.exit(not tell([one for one in read(args.file) if args.tell or asked_of(one) == asked]))


if __name__ == "__main__":
    main()
