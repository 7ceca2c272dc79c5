"""Hill climbing on random op curves over the paper's 68 cores, beside Table V.

    python scripts/research/sim_climb.py [--ops N] [--seed N] [--patience N]

Each op's time follows T(n) = serial + parallel / n + spawn * n, with its best count anywhere from 1
to 68 (Table II's nine among them), its serial part and what 68 threads lose drawn at random, and
each measurement 2 % noise. For each interval X: how many ops the climb leaves within 2 % of their
best time, and how accurately lines between its samples give the counts it never ran
(1 - mean(|predicted - true| / true)): between the samples, and over all 68 counts.
"""

from __future__ import annotations

import argparse
import random
import statistics

from dltune.profile.climb import PATIENCE, Climb
from dltune.simulate.machine_transfer import Law
from dltune.simulate.op_time import Case, Curve
from dltune.simulate.regression import accuracy
from dltune.system.topology import builtin_machine, ladder, placements

KNL = builtin_machine("knl-7250")
CORES = 68
NOISE = 0.02
REPEATS = 3
INTERVALS = (2, 4, 8, 16)
TABLE_II = (26, 42, 68, 36, 56, 68, 45, 63, 66)
# ResNet-50, DCGAN, Inception-v3
TABLE_V = {
    2: (0.9813, 0.9716, 0.9791),
    4: (0.9545, 0.9443, 0.9422),
    8: (0.8342, 0.5154, 0.7321),
    16: (0.3112, 0.1014, 0.2121),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ops", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=int, default=PATIENCE, help="1: the paper's rule")
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    optima = [*TABLE_II, *(draw.randint(1, CORES) for _ in range(arguments.ops - len(TABLE_II)))]
    laws = {f"op{i}": op(n, draw) for i, n in enumerate(optima)}
    print(f"{len(laws)} ops, {NOISE:.0%} noise, median of {REPEATS} samples, seed {arguments.seed}")
    print("interval  cases  within 2 %  accuracy  over all counts  Table V")
    for interval in INTERVALS:
        row = run(laws, interval, random.Random(arguments.seed + interval), arguments.patience)
        paper = ", ".join(f"{value:.1%}" for value in TABLE_V[interval])
        print(f"{interval:8}  {row[0]:5}  {row[1]:10.1%}  {row[2]:8.1%}  {row[3]:15.1%}  {paper}")


def op(best: int, draw: random.Random) -> Law:
    """A law with its minimum at `best` threads; times are in units of its divisible work."""
    return Law(serial=draw.uniform(0.0, 0.05), parallel=1.0, spawn=1.0 / best**2)


def run(
    laws: dict[str, Law], interval: int, draw: random.Random, patience: int
) -> tuple[int, float, float, float]:
    """Cases run; share of ops within 2 %; accuracy between the samples, and everywhere."""
    cases: list[Case] = [(n, p) for n in ladder(KNL, interval) for p in placements(KNL, n)]
    climb = Climb(cases, patience)
    ran = 0
    while climb.case is not None:
        ran += 1
        for key, law in laws.items():
            case = climb.wanted(key)
            assert case is not None  # the climb goes on
            for _ in range(REPEATS):
                climb.add(key, law.seconds(case[0]) * draw.gauss(1.0, NOISE))
        climb.advance()
    measured: dict[str, dict[Case, float]] = {key: {} for key in laws}
    for key, case, samples in climb.samples():
        measured[key][case] = statistics.median(samples)
    every: list[Case] = [(n, p) for n in range(1, CORES + 1) for p in placements(KNL, n)]
    near, between, everywhere = 0, [], []
    for key, law in laws.items():
        curve = Curve.of(measured[key])
        chosen = curve.best(measured[key])
        fastest = min(law.seconds(n) for n in range(1, CORES + 1))
        near += law.seconds(chosen.threads) <= 1.02 * fastest
        top = max(n for n, _ in measured[key])
        held = [case for case in every if case not in measured[key]]
        inside = [case for case in held if case[0] < top]
        if inside:
            between.append(accuracy(*compared(curve, law, inside)))
        if held:
            everywhere.append(accuracy(*compared(curve, law, held)))
    return ran, near / len(laws), statistics.fmean(between), statistics.fmean(everywhere)


def compared(curve: Curve, law: Law, cases: list[Case]) -> tuple[list[float], list[float]]:
    """Predicted and true seconds of these cases."""
    return [curve.seconds(*c) for c in cases], [law.seconds(c[0]) for c in cases]


if __name__ == "__main__":
    main()
