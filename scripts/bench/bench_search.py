"""The search of `dltune tune` beside random search, Nelder-Mead and optuna's TPE, on equal budgets.

    python scripts/bench/bench_search.py TABLE... [--copies FILE] [--repetitions 100]
        [--without TPE]
    python scripts/bench/bench_search.py --nothing FILE... [--trials 200]

TABLE is a file of tests/scripts/bench/recorded, or another that scripts/release/record_settings.py
has made. Every search draws from the same recorded steps (settings_table.py). What it chose is
judged by what that combination truly does: its step time over that of the best of the table.

--nothing: verdicts on a setting that does nothing, drawn from copies of one job.
TPE needs optuna, Nelder-Mead scipy: pip install optuna scipy.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from search_rivals import RIVALS, BudgetSpent, Measuring
from settings_table import Batch, Replayed, Table, load

from dltune.plan.settings.show import in_words as named
from dltune.tune.search import BudgetTooSmallError, Search, judge

BUDGETS = (120.0, 240.0, 480.0)
# of a rival's measurements; the best of these is shown
TURNS = (1, 3)


@dataclass(frozen=True)
class Run:
    """`excess`: step time of what was chosen over the best's, less 1."""

    excess: float
    starts: int
    turns: int
    seconds: float


def climbing(table: Table, budget: float, lot: random.Random) -> Run:
    evaluator = Replayed(table, lot, budget)
    search = Search(evaluator, table.options(), table.recommended)
    try:
        search.run()
        chosen = search.chosen
    except BudgetTooSmallError:
        chosen = ()
    return Run(
        table.ratio(chosen) / table.ratio(table.best) - 1,
        evaluator.starts,
        evaluator.turns,
        evaluator.spent,
    )


def rival(name: str, turns: int, table: Table, budget: float, lot: random.Random) -> Run:
    evaluator = Replayed(table, lot, budget)
    measuring = None
    try:
        measuring = Measuring(evaluator, turns)
        RIVALS[name](table, measuring, lot)
    except BudgetSpent:
        pass
    chosen = measuring.chosen if measuring else ()
    return Run(
        table.ratio(chosen) / table.ratio(table.best) - 1,
        evaluator.starts,
        evaluator.turns,
        evaluator.spent,
    )


def in_words(name: str, runs: list[Run]) -> str:
    excess = sorted(run.excess for run in runs)
    return (
        f"  {name:22} {statistics.median(r.starts for r in runs):4.0f} starts "
        f"{statistics.median(r.turns for r in runs):5.0f} turns "
        f"{statistics.median(r.seconds for r in runs):5.0f} s; over the best: mean "
        f"{statistics.fmean(excess):6.1%}, median {statistics.median(excess):6.1%}, 90 % "
        f"{excess[len(excess) * 9 // 10]:6.1%}; within 2 %: "
        f"{sum(e <= 0.02 for e in excess) / len(excess):4.0%}"
    )


def compare(table: Table, repetitions: int, without: list[str]) -> None:
    given = 1 / table.ratio(table.best) - 1
    best = named(table.best)
    print(
        f"\n{table.about}: {table.combinations} combinations, of which {len(table.recorded)} "
        f"were recorded; the best is {best}; the job as found"
    )
    print(f"takes {given:.1%} more; a start {statistics.median(table.start_seconds):.1f} s, a turn "
          f"{table.turn_seconds:.2f} s")  # fmt: skip
    for budget in BUDGETS:
        print(f" {budget:.0f} s")
        runs = [climbing(table, budget, random.Random(n)) for n in range(repetitions)]
        print(in_words("dltune tune", runs), flush=True)
        for name in RIVALS:
            if name in without:
                continue
            tried = {
                turns: [
                    rival(name, turns, table, budget, random.Random(n)) for n in range(repetitions)
                ]
                for turns in TURNS
            }
            turns, runs = min(
                tried.items(), key=lambda item: statistics.fmean(r.excess for r in item[1])
            )
            print(in_words(f"{name}, {turns} turn{'s' * (turns > 1)}", runs), flush=True)


# --- a setting that does nothing


def ratios(batch: Batch, lot: random.Random) -> Iterator[float]:
    """One copy over another, round by round in the order recorded, from a random place on and
    round in a circle."""
    one, other = lot.sample(sorted(batch.centres), 2)
    count = len(batch.rounds)
    begin = lot.randrange(count)
    for t in itertools.count(begin):
        mine = batch.centres[one] + batch.rest[one][t % count]
        yield math.exp(mine - batch.centres[other] - batch.rest[other][t % count])


def trial(batch: Batch, lot: random.Random) -> tuple[str, int]:
    """The verdict, and after how many rounds."""
    seen: list[float] = []
    for ratio in ratios(batch, lot):
        seen.append(ratio)
        if judged := judge(seen):
            return judged.verdict, len(seen)
    raise AssertionError("rounds go on for ever")


def nothing(table: Table, trials: int) -> Counter[str]:
    lot = random.Random(1)
    found = [trial(lot.choice(table.batches), lot) for _ in range(trials)]
    print(f"{table.about}: {len(table.batches)} batches of copies")
    counts = Counter(said for said, _ in found)
    for said, count in counts.most_common():
        taken = statistics.median(rounds for s, rounds in found if s == said)
        print(f"  {said}: {count / trials:.1%} of {trials} trials, median {taken:.0f} rounds")
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", type=Path, nargs="*", metavar="TABLE")
    parser.add_argument("--copies", type=Path, help="copies of one job: how processes differ")
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--without", action="append", default=[], choices=sorted(RIVALS))
    parser.add_argument("--nothing", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--trials", type=int, default=200)
    args = parser.parse_args()
    for path in args.nothing:
        nothing(load(path), args.trials)
    for path in args.tables:
        compare(load(path, args.copies), args.repetitions, args.without)


if __name__ == "__main__":
    main()
