"""Fit the scaling law of dltune/simulate/machine_transfer.py to Table II of the paper, and print
its constants.

Per op family (Conv2DBackpropFilter, Conv2DBackpropInput, Conv2D) and over its three input sizes:

    T(n) = w * (serial + 1 / n) + spawn * w**GROWTH * n        milliseconds

w, the milliseconds of one run on one thread that can be divided, is unknown for each of the nine
rows; `serial` and `spawn` are one each per family, GROWTH is common. Each row gives three facts:
the time at the best count, that count, and how much slower 68 threads are. The search is random
descent from fixed seeds.
"""

from __future__ import annotations

import math
import random

# Table II: milliseconds a run at the best thread count, that count, loss at 68 threads
TABLE_II = {
    "Conv2DBackpropFilter": ((7.2, 26, 0.173), (11.1, 42, 0.102), (20.3, 68, 0.0)),
    "Conv2DBackpropInput": ((5.8, 36, 0.098), (8.7, 56, 0.023), (19.6, 68, 0.0)),
    "Conv2D": ((4.7, 45, 0.111), (7.4, 63, 0.035), (14.8, 66, 0.020)),
}
CORES = 68
STARTS, STEPS = 12, 4000


def main() -> None:
    candidates = [(sum(fit(f, g)[0] for f in TABLE_II), g) for g in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)]
    growth = min(candidates)[1]
    print(f"GROWTH = {growth}  (errors {', '.join(f'{g}: {e:.3f}' for e, g in candidates)})")
    for family, rows in TABLE_II.items():
        error, (serial, spawn, *works) = fit(family, growth)
        print(f"{family}: serial {serial:.5f} spawn {spawn:.5f} error {error:.3f}")
        for (time, count, loss), work in zip(rows, works, strict=True):
            best = optimum(work, spawn, growth)
            at_best = law(work, serial, spawn, growth, best)
            at_all = law(work, serial, spawn, growth, CORES)
            print(
                f"    {time:5.1f} ms at {count}, {loss:5.1%} lost at 68   fitted: "
                f"{at_best:5.1f} ms at {best:.0f}, {at_all / at_best - 1:5.1%}   w {work:.0f}"
            )


def law(work: float, serial: float, spawn: float, growth: float, threads: float) -> float:
    return work * (serial + 1 / threads) + spawn * work**growth * threads


def optimum(work: float, spawn: float, growth: float) -> float:
    return min(float(CORES), math.sqrt(work ** (1 - growth) / spawn))


def fit(family: str, growth: float) -> tuple[float, list[float]]:
    rows = TABLE_II[family]
    draw = random.Random(family)
    found: tuple[float, list[float]] | None = None
    for _ in range(STARTS):
        at = [10 ** draw.uniform(-4, -2), 10 ** draw.uniform(-3, -0.5)]
        at += [time * draw.uniform(5, 50) for time, _, _ in rows]
        error, size = wrong(rows, growth, at), 0.3
        for step in range(STEPS):
            if draw.random() < 0.5:
                one = draw.randrange(len(at))
                near = [
                    x * math.exp(draw.gauss(0, size)) if i == one else x for i, x in enumerate(at)
                ]
            else:
                near = [x * math.exp(draw.gauss(0, size / 2)) for x in at]
            there = wrong(rows, growth, near)
            if there < error:
                at, error = near, there
            elif step % 500 == 499:
                size *= 0.7
        if found is None or error < found[0]:
            found = (error, at)
    assert found is not None  # STARTS is above 0
    return found


def wrong(rows: tuple[tuple[float, int, float], ...], growth: float, at: list[float]) -> float:
    """Sum of squares; 32 % of the time, 10 points of the loss and all the cores weigh alike."""
    serial, spawn, *works = at
    total = 0.0
    for (time, count, loss), work in zip(rows, works, strict=True):
        best = optimum(work, spawn, growth)
        at_best = law(work, serial, spawn, growth, best)
        total += 10 * math.log(at_best / time) ** 2
        total += 100 * (law(work, serial, spawn, growth, CORES) / at_best - 1 - loss) ** 2
        total += ((best - count) / CORES) ** 2
    return total


if __name__ == "__main__":
    main()
