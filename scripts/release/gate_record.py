"""Record the steps of unchanged code: launches of two processes that take turns.

    python scripts/release/gate_record.py FOLDER [--vary NAME='TOML']... [--seconds 160]
                                          [--neighbour] -- CMD...

What gate_power.py reads, FOLDER/NAME.json.gz for each configuration of the gate that is
named, which take turns launch by launch; without any, FOLDER/default.json.gz. CMD runs here, in
both processes of a launch. `--neighbour`: with another process that computes on one core meanwhile.

    python scripts/release/gate_record.py own --vary "own=allocator = 'as-found'" -- python train.py
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import signal
import statistics
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

from gate_live import busy, in_microseconds, write_recording

from dltune.gate import commands, launches
from dltune.gate.checkouts import Side
from dltune.gate.fairness import alike
from dltune.gate.limits import Config, parse
from dltune.system import topology


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vary", action="append", metavar="NAME=TOML")
    parser.add_argument("--seconds", type=float, default=160.0, help="begin no launch after these")
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("job", nargs="+")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is started is ended then too
    args.folder.mkdir(parents=True, exist_ok=True)
    machine = topology.local()
    sides = [Side(name, name, args.job, Path.cwd()) for name in ("base", "head")]
    kinds: dict[str, tuple[Config, Any]] = {}
    for varied in args.vary or ["default="]:
        name, _, toml = varied.partition("=")
        config = parse(tomllib.loads(toml), name)
        kinds[name] = config, alike(config, "steps", (), machine, sides)[0]
    began = time.monotonic()
    signatures = commands.look(sides[0], machine, steps=True, timeout=120.0, tell=print)
    recorded: dict[str, list[dict[str, list[list[int]]]]] = defaultdict(list)
    logs: dict[str, dict[str, list[float]]] = {
        name: {metric: [] for metric in ("step_time", "step_mean", "step_cpu")} for name in kinds
    }
    took: dict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        if args.neighbour:
            stack.enter_context(busy())
        while time.monotonic() - began < args.seconds:
            for name, (config, variables) in kinds.items():
                started, shared = time.monotonic(), variables()
                found = launches.launch(
                    [side.having(shared) for side in random.sample(sides, 2)],
                    {side.name: signatures for side in sides},
                    machine,
                    rounds=config.rounds_per_launch,
                    seconds=config.seconds_per_turn,
                    patience=config.timeout,
                    wanted=(),
                    tell=lambda _: None,
                )
                took[name].append(time.monotonic() - started)
                recorded[name].append(
                    {side: in_microseconds(turns) for side, turns in found.steps.items()}
                )
                for metric in logs[name]:
                    both = found.values[metric]
                    logs[name][metric].append(math.log(both["head"] / both["base"]))
                spreads = ", ".join(
                    f"{metric} {statistics.pstdev(values):.4f}"
                    for metric, values in logs[name].items()
                )
                faults = [round(value) for value in found.values.get("page_faults", {}).values()]
                print(
                    f"{name}, launch {len(took[name])}: spreads so far {spreads}; "
                    f"{statistics.median(took[name]):.1f} s each; page faults a step {faults}; "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                about = f"{' '.join(args.job)} ({name})"
                write_recording(args.folder / f"{name}.json.gz", about, recorded[name])


if __name__ == "__main__":
    main()
