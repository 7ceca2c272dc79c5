"""Gates on recorded steps of a real training job: launches are drawn again and again.

A recording holds launches of the very same code on both sides. A launch is a block: what its
processes were given at their start stays together, and which of the two is called the head is drawn
by lot, so that every resampled gate is one of unchanged code. A slowdown is put in as a factor on
the head's steps.
"""

from __future__ import annotations

import gzip
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

from dltune.gate.launches import quartile
from dltune.stats import stake

RECORDED = Path(__file__).parent / "recorded"

Steps = list[float]
Launch = tuple[Steps, Steps]


@dataclass(frozen=True)
class Decision:
    outcome: str
    launches: int


def load(name: str) -> list[Launch]:
    """The launches of a recording: the steps of each process in microseconds."""
    data = json.loads(gzip.decompress((RECORDED / f"{name}.json.gz").read_bytes()))
    return [
        tuple([step for turn in launch[side] for step in turn] for side in ("base", "head"))
        for launch in data["launches"]
    ]


def drawn(launches: list[Launch], lot: random.Random) -> Launch:
    """A launch at random, its sides too: (base, head)."""
    first, second = lot.choice(launches)
    return (first, second) if lot.random() < 0.5 else (second, first)


def quartiles(launches: list[Launch]) -> list[tuple[float, float]]:
    """What the gate takes of each launch."""
    return [(quartile(base), quartile(head)) for base, head in launches]


def gate(
    launches: list[tuple[float, float]],
    lot: random.Random,
    *,
    factor: float,
    limit: float,
    confidence: float,
    most: int,
) -> Decision:
    """One gate that looks after every launch and takes `most` of them at most."""
    needed, line = 2 / (1 - confidence), math.log(limit)
    logs: list[float] = []
    for number in range(1, most + 1):
        base, head = lot.choice(launches)
        if lot.random() < 0.5:
            base, head = head, base
        logs.append(math.log(factor * head / base) - line)
        if stake(logs) >= needed:
            return Decision("fail", number)
        if stake([-x for x in logs]) >= needed:
            return Decision("pass", number)
    return Decision("undecided", most)


def upper_bound(failures: int, trials: int, confidence: float = 0.95) -> float:
    """The largest rate that so few failures do not contradict (Clopper and Pearson, 1934)."""
    if failures == trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = sum(
            math.exp(
                math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
                + k * math.log(middle) + (trials - k) * math.log1p(-middle)
            )
            for k in range(failures + 1)
        )  # fmt: skip
        low, high = (middle, high) if chance > 1 - confidence else (low, middle)
    return high
