"""Simulate the paper's machine from profiles taken elsewhere, beside Fig. 3 and Fig. 4.

    python scripts/research/sim_knl.py --fit RESNET50_PROFILE
    python scripts/research/sim_knl.py RESNET50_PROFILE DCGAN_PROFILE INCEPTION_V3_PROFILE

The two methods are in docs/research/knl.md. `--first` fits, or uses, the first: no factor on the
cost of a thread.
"""

from __future__ import annotations

import argparse
import collections
from pathlib import Path

from dltune.frameworks.tensorflow import runtime
from dltune.plan.threads.decide import Strategy, per_instance, per_type, planned
from dltune.schemas.profile import Profile, load
from dltune.simulate import machine_transfer
from dltune.simulate.machine_transfer import transferred
from dltune.simulate.op_time import Curve
from dltune.simulate.workload import Workload, workload
from dltune.system.topology import builtin_machine

SLOTS = (16,)
MODELS = ("ResNet-50", "DCGAN", "Inception-v3")
# Fig. 3 and section IV-B, gains; Fig. 4, mean co-running ops; section IV-B, manual optimisation
PAPER = {
    "per-type over recommended": (0.02, 0.12, 0.02),
    "co-run over per-type": (0.35, 0.15, 0.07),
    "smt over co-run": (0.08, 0.04, 0.07),
    "all over recommended": (0.49, 0.33, 0.17),
    "ops in flight, co-run": (1.61, 1.62, 1.52),
    "ops in flight, co-run+smt": (1.89, 2.04, 1.74),
}
MANUAL = ((16, 4), (34, 2), (68, 2))
# Table VI, ResNet-50, "Recommendation": milliseconds a step of all instances together
TABLE_VI = {
    "Conv2DBackpropFilter": 158,
    "InputConversion": 131,
    "Tile": 107,
    "Mul": 103,
    "ToTf": 79,
    "Conv2DBackpropInput": 76,
    "Select": 59,
    "Mean": 53,
    "Conv2D": 49,
    "Sum": 49,
}
# Table VI, ResNet-50, "Speedup" of strategies 1 and 2; "1.00" is taken as half of what rounds to
# it, and all families that it does not list as the model's 2 % (Fig. 3 a)
GAINS = {
    "Conv2DBackpropFilter": 1.08,
    "Tile": 1.02,
    "Mul": 1.03,
    "Conv2DBackpropInput": 1.01,
    "Mean": 1.05,
    "Conv2D": 1.0025,
    "Sum": 1.01,
    "others": 1.02,
}
STEP = 1382  # Table I, ResNet-50, inter-op 1, intra-op 68: milliseconds
CORES = 68
# What --fit --first found (docs/research/knl.md)
FIRST_SLOWNESS: dict[str | None, float] = {
    "Conv2D": 0.41,
    "Conv2DBackpropFilter": 1.73,
    "Conv2DBackpropInput": 0.974,
    "Mean": 9.37,
    "Mul": 4.36,
    "Sum": 9.14,
    "Tile": 149,
    None: 34.3,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fit", action="store_true", help="print the factors of step 3")
    parser.add_argument("profiles", nargs="+", type=Path)
    parser.add_argument("--first", action="store_true", help="the first method")
    arguments = parser.parse_args()
    profiles = [load(path) for path in arguments.profiles]
    if arguments.fit:
        fit(profiles[0], first=arguments.first)
    else:
        if len(profiles) != len(MODELS):
            parser.error(f"give the profiles of {', '.join(MODELS)}, in this order")
        if arguments.first:
            machine_transfer.SLOWNESS, machine_transfer.SPAWN = FIRST_SLOWNESS, {None: 1.0}
        compare(profiles)


# Of one family: (op type, seconds on one thread of the profiled machine, runs a step)
Instances = list[tuple[str, float, float]]


def fit(profile: Profile, *, first: bool) -> None:
    """Print knl.SLOWNESS and knl.SPAWN: per family the factors with which its total at 68 threads
    and its gain from strategies 1 and 2 are the paper's."""
    serial: dict[str, Instances] = collections.defaultdict(list)
    for step in profile.steps:
        for node in step.nodes:
            if node.op is None or not profile.ops[node.op].times:
                continue
            op = profile.ops[node.op]
            family = machine_transfer.family(op.type)
            named = family if family in TABLE_VI else "others"
            serial[named].append((op.type, Curve.measured(op.times).serial, node.repeats))
    wanted = {**TABLE_VI, "others": STEP - sum(TABLE_VI.values())}
    for family, instances in sorted(serial.items()):
        seconds = wanted[family] / 1e3
        spawn = 1.0 if first else solve_spawn(instances, seconds, GAINS[family])
        factor = solve_slowness(instances, seconds, spawn)
        reached = gain(instances, factor, spawn)
        print(f"{family}: SLOWNESS {factor:.3g}, SPAWN {spawn:.3g} (gain {reached:.3f})")
    for family in sorted(set(wanted) - set(serial)):
        print(f"{family}: {wanted[family]} ms in the paper, not in this graph")


def total(instances: Instances, factor: float, spawn: float, threads: int = CORES) -> float:
    return sum(
        runs * machine_transfer.law(kind, spawn).seconds(own * factor, threads)
        for kind, own, runs in instances
    )


def gain(instances: Instances, factor: float, spawn: float) -> float:
    """Of strategies 1 and 2: all at the best count of the type's most time-consuming instance."""
    types: dict[str, Instances] = collections.defaultdict(list)
    for instance in instances:
        types[instance[0]].append(instance)
    planned_ = 0.0
    for kind, ones in types.items():
        largest = max(own for _, own, _ in ones) * factor
        law = machine_transfer.law(kind, spawn)
        best = min(range(1, CORES + 1), key=lambda n: law.seconds(largest, n))
        planned_ += total(ones, factor, spawn, best)
    return total(instances, factor, spawn) / planned_


def solve_slowness(instances: Instances, seconds: float, spawn: float) -> float:
    """The factor with which these ops take `seconds` at 68 threads."""
    low, high = 1e-3, 1e6
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if total(instances, middle, spawn) < seconds else (low, middle)
    return low


def solve_spawn(instances: Instances, seconds: float, wanted: float) -> float:
    """The factor on the cost of a thread with which strategies 1 and 2 gain `wanted`; at most 1."""
    low, high = 1e-4, 1.0
    for _ in range(25):
        middle = (low * high) ** 0.5
        reached = gain(instances, solve_slowness(instances, seconds, middle), middle)
        low, high = (middle, high) if reached < wanted else (low, middle)
    return low


def compare(profiles: list[Profile]) -> None:
    machine = builtin_machine("knl-7250")
    columns = []
    for profile, (intra, inter) in zip(profiles, MANUAL, strict=True):
        there = transferred(workload(profile), machine)
        columns.append({**stages(there), **by_hand(there, intra, inter)})
    print(f"{'':32}" + "".join(f"{model:>24}" for model in MODELS))
    for row in columns[0]:
        cells = []
        for index, column in enumerate(columns):
            value = column[row]
            if row not in PAPER:
                cells.append(f"{value:.1f} ms" if isinstance(value, float) else value)
            elif row.startswith("ops in flight"):
                cells.append(f"{value:.2f} (paper {PAPER[row][index]:.2f})")
            else:
                cells.append(f"{value:+.0%} (paper {PAPER[row][index]:+.0%})")
        print(f"{row:32}" + "".join(f"{cell:>24}" for cell in cells))


def stages(there: Workload) -> dict[str, float | str]:
    setting = runtime.recommended_threads(there.machine)
    recommended = there.uniform(setting.intra, setting.inter)
    chosen = per_type(there, per_instance(there))
    two, three, four = (
        planned(there, strategy, chosen, SLOTS)
        for strategy in (
            Strategy(per_type=True),
            Strategy(per_type=True, corun=True),
            Strategy(per_type=True, corun=True, smt=True),
        )
    )
    return {
        "recommended": recommended.seconds * 1e3,
        "per-type": two.seconds * 1e3,
        "per-type+co-run": three.seconds * 1e3,
        "per-type+co-run+smt": four.seconds * 1e3,
        "per-type over recommended": recommended.seconds / two.seconds - 1,
        "co-run over per-type": two.seconds / three.seconds - 1,
        "smt over co-run": three.seconds / four.seconds - 1,
        "all over recommended": recommended.seconds / four.seconds - 1,
        "ops in flight, co-run": three.outcome.corunning,
        "ops in flight, co-run+smt": four.outcome.corunning,
    }


def by_hand(there: Workload, intra: int, inter: int) -> dict[str, float | str]:
    """The best uniform setting of the grid beside the paper's."""
    grid = {(u.intra, u.inter): 0.0 for u in runtime.thread_grid(there.machine)}
    for setting in grid:
        grid[setting] = there.uniform(*setting).seconds
    best = min(grid, key=lambda setting: grid[setting])
    theirs = there.uniform(intra, inter).seconds
    return {
        "best uniform": f"{best[0]}x{best[1]}: {grid[best] * 1e3:.0f} ms",
        "the paper's": f"{intra}x{inter}: {theirs * 1e3:.0f} ms",
    }


if __name__ == "__main__":
    main()
