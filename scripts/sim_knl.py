"""Simulate the paper's machine from profiles taken elsewhere, beside Fig. 3 and Fig. 4.

    python scripts/sim_knl.py --fit RESNET50_PROFILE
    python scripts/sim_knl.py RESNET50_PROFILE DCGAN_PROFILE INCEPTION_V3_PROFILE

The method is in docs/knl.md.
"""

from __future__ import annotations

import argparse
import collections
from pathlib import Path

from dltune.documents.profile import Profile, load
from dltune.machine.known import find
from dltune.model import knl
from dltune.model.curve import Curve
from dltune.plan import strategy1, strategy2, uniform
from dltune.plan.choose import planned
from dltune.plan.transfer import transferred
from dltune.plan.workload import Workload, workload

SLOTS = (16,)
MODELS = ("ResNet-50", "DCGAN", "Inception-v3")
# Fig. 3 and section IV-B, gains; Fig. 4, mean co-running ops; section IV-B, manual optimisation
PAPER = {
    "s1+s2 over recommended": (0.02, 0.12, 0.02),
    "s3 over s1+s2": (0.35, 0.15, 0.07),
    "s4 over s3": (0.08, 0.04, 0.07),
    "all over recommended": (0.49, 0.33, 0.17),
    "co-running, s3": (1.61, 1.62, 1.52),
    "co-running, s3+s4": (1.89, 2.04, 1.74),
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
STEP = 1382  # Table I, ResNet-50, inter-op 1, intra-op 68: milliseconds
CORES = 68


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fit", action="store_true", help="print the factors of step 3")
    parser.add_argument("profiles", nargs="+", type=Path)
    arguments = parser.parse_args()
    profiles = [load(path) for path in arguments.profiles]
    if arguments.fit:
        fit(profiles[0])
    else:
        if len(profiles) != len(MODELS):
            parser.error(f"give the profiles of {', '.join(MODELS)}, in this order")
        compare(profiles)


def fit(profile: Profile) -> None:
    """Print knl.SLOWNESS: per family the factor by which its total at 68 threads is the paper's."""
    serial: dict[str, list[tuple[str, float, float]]] = collections.defaultdict(list)
    for step in profile.steps:
        for node in step.nodes:
            if node.op is None or not profile.ops[node.op].times:
                continue
            op = profile.ops[node.op]
            family = knl.family(op.type)
            named = family if family in TABLE_VI else "others"
            serial[named].append((op.type, Curve.measured(op.times).serial, node.repeats))
    wanted = {**TABLE_VI, "others": STEP - sum(TABLE_VI.values())}
    print("SLOWNESS: dict[str | None, float] = {")
    for family, instances in sorted(serial.items()):
        factor = solve(instances, wanted[family] / 1e3)
        name = None if family == "others" else family
        print(f"    {name!r}: {factor:.3g},".replace("'", '"'))
    print("}")
    for family in sorted(set(wanted) - set(serial)):
        print(f"# {family}: {wanted[family]} ms in the paper, not in this graph")


def solve(instances: list[tuple[str, float, float]], seconds: float) -> float:
    """The factor with which these ops (type, seconds on one thread, runs) take `seconds` at 68."""

    def total(factor: float) -> float:
        return sum(
            runs * knl.FAMILIES.get(knl.family(kind), knl.CONV2D).seconds(own * factor, CORES)
            for kind, own, runs in instances
        )

    low, high = 1e-3, 1e6
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if total(middle) < seconds else (low, middle)
    return low


def compare(profiles: list[Profile]) -> None:
    machine = find("knl-7250")
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
            elif row.startswith("co-running"):
                cells.append(f"{value:.2f} (paper {PAPER[row][index]:.2f})")
            else:
                cells.append(f"{value:+.0%} (paper {PAPER[row][index]:+.0%})")
        print(f"{row:32}" + "".join(f"{cell:>24}" for cell in cells))


def stages(there: Workload) -> dict[str, float | str]:
    setting = uniform.recommended(there.machine)
    recommended = there.uniform(setting.intra, setting.inter)
    chosen = strategy2.choices(there, strategy1.choices(there))
    two, three, four = (
        planned(there, name, chosen, SLOTS) for name in ("s1+s2", "s1+s2+s3", "s1+s2+s3+s4")
    )
    return {
        "recommended": recommended.seconds * 1e3,
        "s1+s2": two.seconds * 1e3,
        "s1+s2+s3": three.seconds * 1e3,
        "s1+s2+s3+s4": four.seconds * 1e3,
        "s1+s2 over recommended": recommended.seconds / two.seconds - 1,
        "s3 over s1+s2": two.seconds / three.seconds - 1,
        "s4 over s3": three.seconds / four.seconds - 1,
        "all over recommended": recommended.seconds / four.seconds - 1,
        "co-running, s3": three.outcome.corunning,
        "co-running, s3+s4": four.outcome.corunning,
    }


def by_hand(there: Workload, intra: int, inter: int) -> dict[str, float | str]:
    """The best uniform setting of the grid beside the paper's."""
    grid = {(u.intra, u.inter): 0.0 for u in uniform.grid(there.machine)}
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
