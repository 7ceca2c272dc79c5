"""Do the curves of other ops of a type save profiling cases? Measured, and simulated on 68 cores.

    python scripts/research/fill_gaps.py [FOLDER] [--keys N] [--seed N]

Measured: FOLDER holds table_iv.py's profiles. The ops of AlexNet are predicted on the
counts above one thread from their times on one thread and the ops of the other three models.

Simulated: ops by the law of sim_climb.py, T(n) = serial + parallel / n + spawn * n, with
2 % noise on each sample. Within a type the law is shared up to `jitter` and the best count moves
with the square root of the work; `unrelated` draws every op by itself, as sim_climb.py does, so
that there is nothing to borrow. Half of the keys are climbed with X = 2 and lend; the other half
are climbed with a larger X and filled. "cases": how many cases a climb takes. "accuracy": at all
counts of the 68 cores that the key was not run at, and the share of keys whose predicted best count
takes at most 2 % longer than the true best one: by lines between the samples (section III-C), by
lines between their logarithms, which borrow nothing, and by borrowed shapes.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from borrowed import Shapes

from dltune.profile.climb import Climb
from dltune.schemas import profile as documents
from dltune.simulate.machine_transfer import Law
from dltune.simulate.op_time import Case, Curve, all_cases
from dltune.simulate.regression import accuracy
from dltune.system.topology import builtin_machine, ladder, placements

KNL = builtin_machine("knl-7250")
CASES = all_cases(KNL)
NOISE = 0.02
REPEATS = 3
TYPES = 20
# bent through an op's samples, this shape becomes straight lines of log time over log threads
FLAT = Shapes.of([("any", dict.fromkeys(CASES, 1.0))])
Keys = Mapping[str, tuple[str, Law]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--keys", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.folder:
        measured(arguments.folder)
    print("\n| simulated types | X | cases | lines | lines in logarithms | filled |")
    print("|---" * 6 + "|")
    for name, jitter in (("alike", 0.0), ("30 % apart", 0.3), ("unrelated", None)):
        draw = random.Random(arguments.seed)
        simulated(name, drawn(arguments.keys, jitter, draw), draw)


def measured(folder: Path) -> None:
    """Predict AlexNet's ops on more than one thread."""
    lend: list[tuple[str, Mapping[Case, float]]] = []
    held: list[tuple[str, Mapping[Case, float]]] = []
    for path in sorted(folder.glob("*_[0-9]*.json.gz")):
        for op in documents.load(path).ops:
            times = {(time.threads, time.placement): time.min for time in op.times}
            if times.get((1, "spread"), 0.0) >= 1e-7:
                (held if path.name.startswith("alexnet") else lend).append((op.type, times))
    shapes = Shapes.of(lend)
    heavy = [(kind, times) for kind, times in held if times[1, "spread"] >= 1e-4]
    print("| measured | ops | borrowed shapes | as on one thread | divided by the threads |")
    print("|---|---|---|---|---|")
    for name, ops in (("all ops", held), ("ops of 0.1 ms and more", heavy)):
        scores: list[list[float]] = [[], [], []]
        for kind, times in ops:
            one = times[1, "spread"]
            rest = {case: seconds for case, seconds in times.items() if case[0] > 1}
            filled = shapes.filled(kind, {(1, "spread"): one}, list(rest))
            if not rest or filled.keys() != rest.keys():
                continue
            guesses = (filled, dict.fromkeys(rest, one), {c: one / c[0] for c in rest})
            for found, guess in zip(scores, guesses, strict=True):
                found.append(accuracy([guess[c] for c in rest], list(rest.values())))
        shown = " | ".join(f"{statistics.fmean(found):.1%}" for found in scores)
        print(f"| {name} | {len(scores[0])} | {shown} |")


def drawn(count: int, jitter: float | None, draw: random.Random) -> Keys:
    """By key its type and law; without `jitter` each key has a law of its own."""
    found = {}
    families = [(draw.uniform(0.0, 0.05), draw.uniform(4.0, 68.0)) for _ in range(TYPES)]
    for index in range(count):
        kind = index % TYPES
        work = 10 ** draw.uniform(-1, 1)
        if jitter is None:
            serial, best = draw.uniform(0.0, 0.05), float(draw.randint(1, 68))
        else:
            serial, best = (
                value * draw.uniform(1 - jitter, 1 + jitter) for value in families[kind]
            )
            best *= work**0.5
        found[f"op{index}"] = (f"type{kind}", Law(serial * work, work, work / best**2))
    return found


def simulated(name: str, keys: Keys, draw: random.Random) -> None:
    names = list(keys)
    lenders = {key: keys[key] for key in names[: len(names) // 2]}
    held = {key: keys[key] for key in names[len(names) // 2 :]}
    _, lent = climbed(lenders, 2, draw)
    shapes = Shapes.of([(keys[key][0], _whole(samples)) for key, samples in lent.items()])
    for interval in (2, 4, 8, 16, 34):
        cases, samples = climbed(held, interval, draw)
        lines: list[tuple[float, bool]] = []
        logarithms: list[tuple[float, bool]] = []
        filled: list[tuple[float, bool]] = []
        for key, (kind, law) in held.items():
            curve = Curve.of(samples[key])
            plain = {case: curve.seconds(*case) for case in CASES}
            lines.append(judged(plain, samples[key], law))
            bent = FLAT.filled("any", samples[key], CASES)
            logarithms.append(judged(bent, samples[key], law))
            filled.append(judged(shapes.filled(kind, samples[key], CASES), samples[key], law))
        scores = " | ".join(map(shown, (lines, logarithms, filled)))
        print(f"| {name} | {interval} | {cases} | {scores} |", flush=True)


def climbed(
    keys: Keys, interval: int, draw: random.Random
) -> tuple[int, dict[str, dict[Case, float]]]:
    """How many cases the climb took, and each key's medians."""
    climb = Climb([(n, p) for n in ladder(KNL, interval) for p in placements(KNL, n)])
    ran = 0
    while climb.case is not None:
        ran += 1
        for key, (_, law) in keys.items():
            case = climb.wanted(key)
            assert case is not None  # the climb goes on
            for _ in range(REPEATS):
                climb.add(key, law.seconds(case[0]) * draw.gauss(1.0, NOISE))
        climb.advance()
    found: dict[str, dict[Case, float]] = {}
    for key, case, seconds in climb.samples():
        found.setdefault(key, {})[case] = statistics.median(seconds)
    return ran, found


def _whole(samples: Mapping[Case, float]) -> dict[Case, float]:
    """A lender's curve at every case, up to the counts that it was climbed to."""
    curve = Curve.of(samples)
    top = max(n for n, _ in samples)
    return {case: curve.seconds(*case) for case in CASES if case[0] <= top}


def judged(
    predicted: Mapping[Case, float], samples: Mapping[Case, float], law: Law
) -> tuple[float, bool]:
    truth = {case: law.seconds(case[0]) for case in CASES if case not in samples}
    chosen = min(predicted, key=lambda case: predicted[case])
    fastest = min(law.seconds(n) for n, _ in CASES)
    near = accuracy([predicted[c] for c in truth], list(truth.values()))
    return near, law.seconds(chosen[0]) <= 1.02 * fastest


def shown(found: Sequence[tuple[float, bool]]) -> str:
    score = statistics.fmean(accuracy_ for accuracy_, _ in found)
    return f"{score:.1%}, {statistics.fmean(best for _, best in found):.0%}"


if __name__ == "__main__":
    main()
