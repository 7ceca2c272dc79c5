"""Collect what Table IV of the paper needs, train all regressors, print the table beside ours.

    python scripts/research/table_iv.py FOLDER [--limit SECONDS] [--budget SECONDS]

Training data: the ops of ResNet-50, DCGAN and Inception-v3, run standalone at batch sizes 16 to
256. Test data: AlexNet's. Each model is profiled once at a small batch size that is no channel
count, and its ops are then run standalone at each size, a file each in FOLDER; files that are there
are not made again. A file that takes longer than `--limit`, or needs more memory than is free, is
left out and told. `--budget` ends the command after so long, to share a machine; call it again.
With `--budget 0` the tables are made of what is there.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dltune.schemas import profile as documents
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile
from dltune.simulate.op_time import Curve, all_cases
from dltune.simulate.regression import NAMES, Layout, accuracy, evaluated, sample_cases, train
from dltune.system.topology import ladder

EXAMPLES = Path(__file__).parents[1] / "examples"
TRAINING = ("resnet50", "dcgan", "inception_v3")
TEST = "alexnet"
LONGEST = "inception_v3"
SMALL_BATCH = 12
BATCHES = (16, 32, 64, 128, 256)
PAPER_SAMPLES = (1, 4, 8, 16)
# accuracy in per cent and R2 for each of these
TABLE_IV = {
    "gradient boosting": ((61, 0.961), (57, 0.957), (51, 0.972), (34, 0.959)),
    "k-neighbours": ((56, 0.818), (67, 0.592), (56, 0.589), (26, 0.585)),
    "Theil-Sen": ((37, 0.779), (17, 0.539), (26, 0.965), (13, 0.852)),
    "least squares": ((27, 0.981), (21, 0.951), (31, 0.977), (14, 0.892)),
    "passive aggressive": ((18, 0.196), (14, 0.175), (18, 0.177), (11, 0.159)),
}
# by interval: ResNet-50, DCGAN, Inception-v3
TABLE_V = {
    2: (98.13, 97.16, 97.91),
    4: (95.45, 94.43, 94.22),
    8: (83.42, 51.54, 73.21),
    16: (31.12, 10.14, 21.21),
}
TOO_LONG = "it takes longer than the limit"
# seconds that no file is made in
LEAST = 25.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=float, default=170.0)
    parser.add_argument("--budget", type=float, default=float("inf"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    whole = collected(arguments.folder, arguments.limit, arguments.budget)
    if not whole and arguments.budget > 0:
        print("files are still missing: call this again", file=sys.stderr)
        return
    training = loaded(arguments.folder, TRAINING)
    test = loaded(arguments.folder, (TEST,))
    show(training, test)


def loaded(folder: Path, models: Sequence[str]) -> list[Profile]:
    """The standalone profiles of these models; says what is left out."""
    found = []
    for model in models:
        for batch in BATCHES:
            path = piece(folder, model, batch)
            if path.exists():
                found.append(documents.load(path))
            else:
                why = left_out(path)
                reason = why.read_text().strip() if why.exists() else "not made yet"
                print(f"left out: {model} at batch {batch}: {reason}")
    return found


def show(training: Sequence[Profile], test: Sequence[Profile]) -> None:
    machine = training[0].machine
    cases = all_cases(machine)
    numbers = [n for n in PAPER_SAMPLES if n < len({threads for threads, _ in cases})]
    layout = Layout.of([*training, *test], sample_cases(cases, 1))
    events = f"events: {', '.join(layout.events)}, per {layout.per}" if layout.events else ""
    print(
        f"{machine.name}, {len(cases)} cases; trained on {sum(len(p.ops) for p in training)} ops, "
        f"tested on {sum(len(p.ops) for p in test)} of AlexNet; "
        f"features: times and work{', ' + events if events else ', no events were counted'}"
    )
    print("accuracy and R2 over the cases that are no samples; N: sample cases")
    heads = [f"N={n} {how}" for n in numbers for how in ("as the paper", "logarithms")]
    print("| regressor | paper, N=1, 4, 8, 16 | " + " | ".join(heads) + " |")
    print("|---" * (2 + len(heads)) + "|", flush=True)
    for name in NAMES:
        cells = [
            cell(name, training, test, number, logarithms=logarithms)
            for number in numbers
            for logarithms in (False, True)
        ]
        print(f"| {name} | {paper(name)} | " + " | ".join(cells) + " |", flush=True)
    show_table_v(test, machine)


def cell(
    name: str,
    training: Sequence[Profile],
    test: Sequence[Profile],
    samples: int,
    *,
    logarithms: bool,
) -> str:
    """Accuracy and R2, the mean over the cases that are no samples."""
    trained = train(
        training,
        training[0].machine,
        regressor=name,
        samples=samples,
        logarithms=logarithms,
        folds=0,
    )
    found = evaluated(trained, test)
    scores = [score for case, score in found.items() if case not in trained.layout.samples]
    accuracy = statistics.fmean(score.accuracy for score in scores)
    return f"{accuracy:.0%}, {statistics.fmean(score.r2 for score in scores):.3f}"


def paper(name: str) -> str:
    if name not in TABLE_IV:
        return "tried, not printed"
    return "; ".join(f"{accuracy}%, {r2:.3f}" for accuracy, r2 in TABLE_IV[name])


def show_table_v(profiles: Sequence[Profile], machine: Machine) -> None:
    """Hill climbing's accuracy at the counts between an interval's samples."""
    print("\n| interval | Table V: ResNet-50, DCGAN, Inception-v3 | hill climbing here |")
    print("|---|---|---|")
    for interval, values in TABLE_V.items():
        counts = ladder(machine, interval)
        found = []
        for op in (op for profile in profiles for op in profile.ops):
            times = {(time.threads, time.placement): time.min for time in op.times}
            kept = {case: seconds for case, seconds in times.items() if case[0] in counts}
            held = {case: seconds for case, seconds in times.items() if case not in kept}
            if kept and held:
                curve = Curve.of(kept)
                found.append(accuracy([curve.seconds(*c) for c in held], list(held.values())))
        here = f"{statistics.fmean(found):.1%}" if found else "every count is a sample"
        print(f"| {interval} | {', '.join(f'{value}%' for value in values)} | {here} |")


def collected(folder: Path, limit: float, budget: float) -> bool:
    """Make what is missing; whether nothing is missing any more."""
    end = time.monotonic() + budget
    for model, batch in pieces():
        output = piece(folder, model, batch)
        if output.exists() or left_out(output).exists():
            continue
        left = end - time.monotonic()
        if left < LEAST:
            return False
        reason = profiled(output, job(folder, model, batch), min(limit, left))
        if reason is not None:
            output.unlink(missing_ok=True)
            if reason == TOO_LONG and left < limit:
                return False
            left_out(output).write_text(reason)
    return True


def pieces() -> list[tuple[str, int | None]]:
    """The models as such, then at each batch size; the larger ones of Inception-v3, which take
    longest, last."""
    models = [*TRAINING, TEST]
    sizes = [(model, batch) for batch in BATCHES for model in models]
    sizes.sort(key=lambda piece: piece[0] == LONGEST and piece[1] > BATCHES[0])
    return [*((model, None) for model in models), *sizes]


def job(folder: Path, model: str, batch: int | None) -> list[str]:
    if batch is not None:
        return ["--ops-of", str(piece(folder, model, None)), "--batch", str(batch)]
    script = str(EXAMPLES / f"train_{model}.py")
    return ["--", sys.executable, script, "--batch", str(SMALL_BATCH)]


def left_out(output: Path) -> Path:
    """Where it stands why `output` was not made."""
    return output.with_name(output.name + ".left-out")


def piece(folder: Path, model: str, batch: int | None) -> Path:
    return folder / (f"{model}.json.gz" if batch is None else f"{model}_{batch}.json.gz")


def profiled(output: Path, job: list[str], limit: float) -> str | None:
    """Profile; why that did not work, None when it did."""
    print(f"making {output.name}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "dltune", "profile", "--steps", "3", "-o", str(output), *job]
    log = output.with_suffix(".log")
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return TOO_LONG
    last = [line for line in log.read_text(errors="replace").splitlines() if "dltune: " in line]
    return None if code == 0 else (last or [f"exit code {code}"])[-1]


if __name__ == "__main__":
    main()
