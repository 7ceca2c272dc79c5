"""Two ranks of one node, each training the same model: plain against `dltune run`'s shares.

    python scripts/bench/bench_ranks.py --plan plan.json [--rounds 12]
        -- python scripts/examples/train_resnet50.py

Starts two plain processes and two with the local rank and size that a launcher sets, under the
plan. The two pairs take turns; within a turn both processes of a pair run at once. Prints steps per
second of each pair together, and the ratio with its 95 % interval.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import threading
import time
from pathlib import Path
from statistics import median

from dltune.job import rank_layout
from dltune.job.launch import Job, Process
from dltune.job.protocol import Orders, Plugin, Python, Waiting, machine_lines, uniform_line
from dltune.plan.plan import load_plan
from dltune.plan.threads.fitted import fit
from dltune.schemas.machine import Machine
from dltune.schemas.plan import Plan, Threads
from dltune.stats import paired_ratio
from dltune.system import topology

RANKS = 2


class Rank(threading.Thread):
    """One process; `planned` gives it its share of the cores and the plan."""

    def __init__(
        self, command: list[str], plan: Plan, machine: Machine, rank: int, *, planned: bool
    ) -> None:
        super().__init__(daemon=True)
        self.standing = threading.Event()
        self.command, self.plan, self.machine = command, plan, machine
        self.part = (
            rank_layout.rank_cores(machine, rank_layout.Rank(rank, RANKS)) if planned else None
        )
        self.process: Process | None = None
        self.job: Job | None = None
        self.over = False

    def answer(self, _: Python) -> dict[str, object]:
        if self.part is None:
            return {}
        return {"cpus": [cpu for core in self.part.cores for cpu in core.cpus]}

    def greet(self, process: Process) -> list[str]:
        self.process = process
        if self.part is None:
            orders = Orders(1, targets=self.plan.signatures)
            lines = [*machine_lines(self.machine), uniform_line(0, 0)]
        else:
            section = self.plan.of(Threads)
            assert section is not None
            fitted = fit(section, self.part)
            orders = fitted.orders(1, self.plan.signatures)
            lines = machine_lines(self.part, fitted.uniform)
        orders.barrier = True
        return [*lines, *orders.lines()]

    def run(self) -> None:
        with Job(
            self.command, answer=self.answer, greet=self.greet, stdout=subprocess.DEVNULL
        ) as job:
            self.job = job
            for event in job.events(0.2):
                if self.over:
                    return
                if event is not None and isinstance(event.message, Waiting):
                    self.standing.set()
                elif event is not None and isinstance(event.message, Plugin):
                    self.standing.clear()

    def grant(self, executions: int) -> None:
        assert self.process is not None
        self.standing.clear()
        self.process.order([f"grant\t{executions}"])


def turn(ranks: list[Rank], executions: int) -> float:
    """Steps per second of the ranks together, from the grant until the last one stands again."""
    began = time.monotonic()
    for rank in ranks:
        rank.grant(executions)
    for rank in ranks:
        rank.standing.wait()
    return len(ranks) * executions / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=12, help="steps of each rank in a turn")
    parser.add_argument("job", nargs="+")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the jobs are ended then too
    plan, machine = load_plan(options.plan), topology.local()
    pairs = {
        name: [
            Rank(options.job, plan, machine, rank, planned=name == "planned")
            for rank in range(RANKS)
        ]
        for name in ("plain", "planned")
    }
    everyone = [rank for pair in pairs.values() for rank in pair]
    try:
        for rank in everyone:
            rank.start()
            rank.standing.wait()
        for pair in pairs.values():
            turn(pair, 3)  # warm up
        found = []
        for number in range(options.rounds):
            order = ("plain", "planned") if number % 2 else ("planned", "plain")
            rates = {name: turn(pairs[name], options.steps) for name in order}
            found.append((rates["planned"], rates["plain"]))
            print(f"round {number}: {rates['plain']:.2f} plain, {rates['planned']:.2f} planned")
    finally:
        for rank in everyone:
            rank.over = True
        for rank in everyone:
            if rank.is_alive():
                rank.join(timeout=30)
    interval = paired_ratio(found)
    print(
        f"steps/s together: plain {median([b for _, b in found]):.2f}, planned "
        f"{median([a for a, _ in found]):.2f}; ratio {interval.median:.3f} "
        f"(95 %: {interval.low:.3f} to {interval.high:.3f}, {interval.rounds} rounds)"
    )


if __name__ == "__main__":
    main()
