"""How often the gate errs, and how long it takes, on recorded steps of unchanged code; beside
pytest-benchmark's and pyperf's rules on the same steps.

    python scripts/release/gate_power.py RECORDING [--trials N] [--seconds 6]

RECORDING is a file of tests/gate/recorded, or one that gate_record.py has made. Each trial
draws launches again (blocks: all steps of a launch stay together) and which side is called the
head; a slowdown is a factor on the head's steps.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "gate"))

import resampled

from dltune.gate.limits import DEFAULT_RATIO, Config

SLOWDOWNS = (1.0, 1.04, 1.05, 1.10)
Rule = Callable[[list[resampled.Launch], float], bool]


def pytest_benchmark(statistic: Callable[[list[float]], float], percent: float) -> Rule:
    """--benchmark-compare-fail=STATISTIC:PERCENT%: all rounds of a run are one sample."""

    def alarm(launches: list[resampled.Launch], factor: float) -> bool:
        base = statistic([step for steps, _ in launches for step in steps])
        head = factor * statistic([step for _, steps in launches for step in steps])
        return (head - base) / base * 100 > percent

    return alarm


def pyperf(percent: float) -> Rule:
    """compare_to: slower by a t-test of all values, and by at least --min-speed; it tells, but
    exits 0 all the same."""
    from pyperf._utils import is_significant

    def alarm(launches: list[resampled.Launch], factor: float) -> bool:
        base = [step * 1e-6 for steps, _ in launches for step in steps]
        head = [factor * step * 1e-6 for _, steps in launches for step in steps]
        slower = statistics.fmean(head) / statistics.fmean(base) - 1
        common = min(len(base), len(head))  # its t-test takes as many values of each
        return slower * 100 >= percent and is_significant(base[:common], head[:common])[0]

    return alarm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=12.5, help="of one launch")
    args = parser.parse_args()
    resampled.RECORDED = args.recording.parent
    launches = resampled.load(args.recording.name.removesuffix(".json.gz"))
    config = Config()
    most = int(config.budget // args.seconds)
    middles = resampled.quartiles(launches)
    spread = statistics.pstdev([math.log(h / b) for b, h in middles])
    print(f"{len(launches)} launches, ratio of two of the same code: spread {spread:.3f}")
    print(f"at most {most} launches a gate\n")
    for factor in SLOWDOWNS:
        lot = random.Random(1)
        found = [
            resampled.gate(
                *(middles, lot),
                factor=factor,
                limit=DEFAULT_RATIO,
                confidence=config.confidence,
                most=most,
            )
            for _ in range(args.trials)
        ]
        failed = sum(d.outcome == "fail" for d in found)
        passed = sum(d.outcome == "pass" for d in found)
        taken = sorted(d.launches for d in found)
        print(
            f"x{factor}: fail {failed / args.trials:.2%} (at most "
            f"{resampled.upper_bound(failed, args.trials):.2%}), pass {passed / args.trials:.1%}; "
            f"launches: median {taken[len(taken) // 2]}, 90 % {taken[len(taken) * 9 // 10]}"
        )
    rules = {
        "pytest-benchmark median:5%": pytest_benchmark(statistics.median, 5),
        "pytest-benchmark min:5%": pytest_benchmark(min, 5),
        "pytest-benchmark mean:5%": pytest_benchmark(statistics.fmean, 5),
        "pyperf compare_to": pyperf(0),
        "pyperf compare_to --min-speed=2": pyperf(2),
    }
    for count in (1, most):
        print(f"\nalarms, {count} launch{'es' * (count > 1)} a side")
        for name, rule in rules.items():
            lot = random.Random(2)
            trials = max(100, args.trials // (4 * count))
            rates = []
            for factor in SLOWDOWNS:
                alarms = sum(
                    rule([resampled.drawn(launches, lot) for _ in range(count)], factor)
                    for _ in range(trials)
                )
                rates.append(f"x{factor} {alarms / trials:.0%}")
            print(f"  {name}: {', '.join(rates)} ({trials} trials)")


if __name__ == "__main__":
    main()
