"""Two ranks of DistributedDataParallel's, each in a network namespace with a limited link: as the
job is, and in planned buckets.

    PYTHONPATH=. python scripts/bench/bench_buckets.py FOLDER [--rounds 10] [--steps 40]
        [--rate 200mbit] [-- python scripts/examples/train_torch_transformer.py]

As root. Without --rate the link is such that the gradients travel for as long as a step computes:
the ranks are profiled once without a limit to find it. Then they are profiled with it, planned for
(`dltune plan buckets`), and run without and with the plan in turns, each turn from the start; the
first steps of a turn do not count. Prints the median step of each turn by the job's own clock,
whether the losses are the same, the ratio with its 95 % interval, and the prediction.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from namespaces import Namespace, namespaces

from dltune.stats import paired_ratio

ROOT = Path(__file__).resolve().parents[2]
JOB = (
    str(ROOT / ".venv-torch/bin/python"),
    str(ROOT / "scripts/examples/train_torch_transformer.py"),
)
DLTUNE = (sys.executable, "-m", "dltune")
RANKS = 2
UNLIMITED = "40gbit"
WARM_UP = 10  # steps of a turn that are not counted
PATIENCE = 300.0  # seconds for one turn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rate", help="of each rank's link, as tc reads it")
    parser.add_argument("job", nargs="*", default=JOB)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the ranks are ended then too
    options.folder.mkdir(exist_ok=True)
    with namespaces(RANKS, options.rate or UNLIMITED) as places:
        rate = options.rate or balanced(places, options.job, options.folder)
        for one in places:
            one.limit(rate)
        profile, plan = options.folder / "profile.json", options.folder / "plan.json"
        profiled(places, options.job, profile)
        run([*DLTUNE, "plan", "buckets", str(profile), "-o", str(plan), "--overwrite"])
        compare(places, options, plan, rate)


def balanced(places: Sequence[Namespace], job: Sequence[str], folder: Path) -> str:
    """The rate at which a step's gradients take as long as all else in it."""
    profile = folder / "unlimited.json"
    profiled(places, job, profile)
    step = json.loads(profile.read_text())["steps"][0]
    bytes = sum(one["bytes"] for one in step["collectives"])
    # of two ranks each sends half of the sums' parts, and then half of the sums
    return f"{8 * bytes / step['wall']['median'] / 1e6:.0f}mbit"


def profiled(places: Sequence[Namespace], job: Sequence[str], profile: Path) -> None:
    """The first rank is; the second ends with it."""
    command = [*DLTUNE, "profile", "-o", str(profile), "--overwrite", "--", *job]
    others = [started(place, rank, places, job) for rank, place in enumerate(places) if rank]
    try:
        first = started(places[0], 0, places, command)
        _, err = first.communicate(timeout=PATIENCE)
    finally:
        for other in others:
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()
    if first.returncode:
        raise SystemExit(f"the profile failed: {err[-800:]}")


def compare(
    places: Sequence[Namespace], options: argparse.Namespace, plan: Path, rate: str
) -> None:
    model = json.loads(plan.read_text())["sections"]["buckets"]["models"][0]
    print(
        f"{rate}: predicted {model['seconds'] * 1e3:.1f} ms in buckets of {model['before']} bytes, "
        f"{model['predicted'] * 1e3:.1f} ms in {model['planned']}",
        flush=True,
    )
    under = (*DLTUNE, "run", "--plan", str(plan), "--")
    pairs, same = [], True
    for number in range(options.rounds):
        turns = {}
        for planned in (True, False) if number % 2 else (False, True):
            turns[planned] = turn(places, options, under if planned else ())
        pairs.append((turns[False][0], turns[True][0]))
        same &= turns[False][1] == turns[True][1]
        print(
            f"round {number}: {pairs[-1][0] * 1e3:.1f} ms plain, {pairs[-1][1] * 1e3:.1f} ms "
            f"planned; losses {'the same' if turns[False][1] == turns[True][1] else 'DIFFER'}",
            flush=True,
        )
    interval = paired_ratio(pairs)
    planned = median(seconds for _, seconds in pairs)
    print(
        f"plain {median(seconds for seconds, _ in pairs) * 1e3:.1f} ms, planned "
        f"{planned * 1e3:.1f} ms ({planned / model['predicted']:.3f} of the prediction); "
        f"{interval.median:.3f} times as fast (95 %: {interval.low:.3f} to {interval.high:.3f}, "
        f"{interval.rounds} rounds); losses {'the same' if same else 'DIFFER'}"
    )


def turn(
    places: Sequence[Namespace], options: argparse.Namespace, under: Sequence[str]
) -> tuple[float, list[str]]:
    """The median step of rank 0 in seconds, and the losses of all ranks."""
    files = [options.folder / f"losses{rank}.txt" for rank in range(RANKS)]
    ranks = [
        started(
            place,
            rank,
            places,
            [
                *under,
                *options.job,
                *("--steps", str(options.steps), "--log-every", "1"),
                *("--losses", str(files[rank])),
            ],
        )
        for rank, place in enumerate(places)
    ]
    try:
        told = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
    for rank, (_, err) in zip(ranks, told, strict=True):
        if rank.returncode:
            raise SystemExit(f"a rank failed: {err[-800:]}")
    ends = [float(seconds) for seconds in re.findall(r"([\d.]+) s$", told[0][0], re.M)]
    steps = [b - a for a, b in zip(ends[WARM_UP:], ends[WARM_UP + 1 :], strict=False)]
    return median(steps), [line for file in files for line in file.read_text().splitlines()]


def started(
    place: Namespace, rank: int, places: Sequence[Namespace], command: Sequence[str]
) -> subprocess.Popen[str]:
    """As a launcher starts it that gives each of two nodes one rank."""
    told = {
        **{"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": places[0].address, "MASTER_PORT": "29600", "OMP_NUM_THREADS": "1"},
        **{"GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(ROOT)},
    }
    return subprocess.Popen(
        [*place.command, *command],
        env={**os.environ, **told},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(command: Sequence[str]) -> None:
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
