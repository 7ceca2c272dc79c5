"""Steps of a job with a parameter server by the order of its transfers, at a limited rate.

    sudo python scripts/bench_transfers.py results --rate 200mbit --rounds 5 --steps 40

Profiles `train_ps.py` in network namespaces, then runs it in rounds, each with one job an order:
none, TicTac's TIC and TAC, dltune's, a random one and TAC's reversed. Every step is recorded op by
op. Prints step times, their ratio to no order in the same round, the efficiency E by each step's
own op times, and how well E explains step times (TicTac, section 3.2).
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np

from dltune.documents import profile as documents
from dltune.documents.profile import Profile, tensor
from dltune.documents.sections.threads import Uniform
from dltune.documents.sections.transfers import Receiver
from dltune.job import messages
from dltune.job.launch import Job, Process
from dltune.job.orders import Orders, machine_lines
from dltune.job.record import span
from dltune.machine import topology
from dltune.planners.transfers.decide import Cluster, decide
from dltune.planners.transfers.steps import efficiency
from dltune.stats.samples import quantiles

TRAIN = Path(__file__).with_name("train_ps.py")
WARM_UP = 3
# small ones may come together in one message, whose order nobody sees
LARGE = 16 << 10
ORDERS = ("none", "tic", "tac", "improved", "random", "reverse")


@dataclass(frozen=True)
class Step:
    """`seconds` from its first op to its last, `efficiency` by its own op times, `arrivals`: its
    tensors as they came, `turned`: the share of neighbours among the large ones that came in the
    other order than planned (None: there was none)."""

    order: str
    round: int
    seconds: float
    efficiency: float
    arrivals: tuple[str, ...]
    turned: float | None


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="folder for the profile and the steps")
    parser.add_argument("--rate", help="of each task's network [loopback]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="of each job")
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--pools", default="2x1", help="TensorFlow's, intra-op x inter-op")
    parser.add_argument("--inference", action="store_true")
    parser.add_argument("--batch", type=int, default=8)
    return parser.parse_args()


def main() -> None:
    settings = parsed()
    settings.results.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(TRAIN), "--batch", str(settings.batch)]
    command += ["--rate", settings.rate] if settings.rate else []
    command += ["--inference"] if settings.inference else []
    intra, inter = map(int, settings.pools.split("x"))
    profile = profiled(command, settings.results / "profile.json", intra)
    for link in profile.links:
        print(f"{link.sender}: {link}", file=sys.stderr)
    receivers = planned(profile)
    steps: list[Step] = []
    with open(settings.results / "steps.jsonl", "w") as file:
        for number in range(settings.rounds):
            for order in settings.orders.split(","):
                told = ran([*command, "--steps", str(settings.steps)], receivers[order],
                           Uniform(intra, inter), order == "none")  # fmt: skip
                for step in itertools.islice(told, WARM_UP, None):
                    steps.append(Step(order, number, *step))
                    file.write(json.dumps(asdict(steps[-1])) + "\n")
                print(f"round {number} {order}", file=sys.stderr)
    report(steps, receivers["improved"])


def profiled(command: Sequence[str], path: Path, intra: int) -> Profile:
    """Of a job with so many threads within an op, for the planner."""
    whole = [*command, "--steps", "1000000"]
    if not path.exists():
        dltune = [sys.executable, "-m", "dltune", "profile", "--counters", "none", "-o", str(path)]
        subprocess.run([*dltune, "--", *whole], check=True, stdout=2)
    found = documents.load(path)
    if list(found.command) != whole:
        sys.exit(f"{path} is of another job: {' '.join(found.command)}")
    settings = msgspec.structs.replace(found.settings, intra=intra)
    return msgspec.structs.replace(found, settings=settings)


def planned(profile: Profile) -> dict[str, Receiver]:
    """By order, what the worker receives."""
    found = {name: decide(profile, name, Cluster()).receivers[0] for name in ORDERS[1:4]}
    shuffled = list(found["tac"].transfers)
    random.Random(1).shuffle(shuffled)
    replace = msgspec.structs.replace
    return {
        **found,
        "none": found["tac"],
        "random": replace(found["tac"], transfers=tuple(shuffled)),
        "reverse": replace(found["tac"], transfers=found["tac"].transfers[::-1]),
    }


Told = tuple[float, float, tuple[str, ...], float | None]


def ran(
    command: Sequence[str], receiver: Receiver, pools: Uniform, unordered: bool
) -> Iterator[Told]:
    """One job: of each step seconds, E, arrivals and the share that was turned."""
    names = [transfer.tensor for transfer in receiver.transfers]
    large = [transfer.tensor for transfer in receiver.transfers if transfer.bytes >= LARGE]
    lines = [] if unordered else ["window\t1048576"]
    lines += [] if unordered else [f"send\t{receiver.task}\t{name}" for name in names]
    lines += Orders(1, targets=[receiver.signature], events=True).lines()

    def greet(_: Process) -> list[str]:
        return [*machine_lines(topology.local(), pools), *lines]

    graph: messages.Graph | None = None
    with Job(command, greet=greet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        for event in job.events(1.0):
            message = event.message if event else None
            if isinstance(message, messages.Graph) and message.signature == receiver.signature:
                graph = message
            elif isinstance(message, messages.Execution) and graph:
                found = efficiency(message, graph, receiver)
                if found is not None:
                    came = arrived(message, graph, names)
                    yield span(message), found, came, None if unordered else turned(came, large)
        assert job.exit_code == 0, job.exit_code


def arrived(
    execution: messages.Execution, graph: messages.Graph, names: Sequence[str]
) -> tuple[str, ...]:
    """Tensors in the order in which the last receive of each ended."""
    last: dict[str, int] = {}
    for node, *_, end, _ in execution.events:
        partner = graph.nodes[node].partner
        if graph.nodes[node].type == "_Recv" and partner is not None:
            name = tensor(partner.rendezvous)
            last[name] = max(last.get(name, 0), end)
    return tuple(sorted((name for name in last if name in names), key=last.__getitem__))


def turned(came: Sequence[str], names: Sequence[str]) -> float | None:
    places = [names.index(name) for name in came if name in names]
    pairs = list(itertools.pairwise(places))
    return sum(a > b for a, b in pairs) / len(pairs) if pairs else None


def report(steps: Sequence[Step], receiver: Receiver) -> None:
    predicted = {one.order: one for one in receiver.predictions}
    print(f"S = {speedup(receiver):.2f}; predicted {predicted}", file=sys.stderr)
    print("| order | steps | median ms | over none | E | best / worst 5 % | orders | turned |")
    print("|---|---|---|---|---|---|---|---|")
    for order in dict.fromkeys(step.order for step in steps):
        mine = [step for step in steps if step.order == order]
        seconds = [step.seconds for step in mine]
        low, high = quantiles(seconds, (0.0, 0.95))
        ratios = sorted(paired(steps, order))
        turns = [step.turned for step in mine if step.turned is not None]
        print(
            f"| {order} | {len(mine)} | {statistics.median(seconds) * 1e3:.1f} "
            f"| {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) "
            f"| {statistics.median(s.efficiency for s in mine):.3f} | {low / high:.3f} "
            f"| {len({s.arrivals for s in mine})} "
            f"| {f'{statistics.mean(turns):.1%}' if turns else ''} |"
        )
    print(f"\nR² of step time on E: {explained(steps):.3f} over all steps; by order "
          + ", ".join(f"{order} {explained([s for s in steps if s.order == order]):.3f}"
                      for order in dict.fromkeys(s.order for s in steps)))  # fmt: skip


def speedup(receiver: Receiver) -> float:
    assert receiver.lower
    assert receiver.upper
    return (receiver.upper - receiver.lower) / receiver.lower


def paired(steps: Sequence[Step], order: str) -> Iterator[float]:
    """Of each round its median step over that without an order."""
    for number in dict.fromkeys(step.round for step in steps):
        medians = [
            statistics.median(s.seconds for s in steps if (s.order, s.round) == (name, number))
            for name in (order, "none")
        ]
        yield medians[0] / medians[1]


def explained(steps: Sequence[Step]) -> float:
    """R² of the line through efficiencies and step times."""
    table = np.array([(step.efficiency, step.seconds) for step in steps])
    return float(np.corrcoef(table.T)[0, 1] ** 2)


if __name__ == "__main__":
    main()
