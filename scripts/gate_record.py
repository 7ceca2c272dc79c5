"""Record the steps of unchanged code: launches of two processes that take turns.

    python scripts/gate_record.py OUT.json.gz [--seconds 160] -- CMD...

What scripts/gate_power.py reads. CMD runs here, in both processes of a launch.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from pathlib import Path

from dltune.gate import probe, training
from dltune.gate.config import Config
from dltune.gate.side import Side
from dltune.machine import topology


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=160.0, help="begin no launch after these")
    parser.add_argument("job", nargs="+")
    args = parser.parse_args()
    config, machine = Config(), topology.local()
    sides = [Side(name, name, args.job, Path.cwd()) for name in ("base", "head")]
    began = time.monotonic()
    signatures = probe.look(sides[0], machine, steps=True, timeout=120.0, tell=print)
    launches: list[dict[str, list[list[int]]]] = []
    while time.monotonic() - began < args.seconds:
        found = training.launch(
            random.sample(sides, 2),
            {side.name: signatures for side in sides},
            machine,
            rounds=config.rounds_per_launch,
            seconds=config.seconds_per_turn,
            patience=60.0,
            wanted=(),
            tell=lambda _: None,
        )
        launches.append(
            {
                name: [[round(step * 1e6) for step in turn] for turn in turns]
                for name, turns in found.steps.items()
            }
        )
        ratio = found.values["step_time"]["head"] / found.values["step_time"]["base"]
        print(f"launch {len(launches)}: ratio {ratio:.3f}", flush=True)
        data = {"about": " ".join(args.job), "launches": launches}
        args.out.write_bytes(gzip.compress(json.dumps(data).encode(), mtime=0))


if __name__ == "__main__":
    main()
