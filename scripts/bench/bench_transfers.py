"""Steps of a job with a parameter server by the order of its transfers, at a limited rate.

    sudo python scripts/bench/bench_transfers.py results --rate 200mbit --rounds 5 --steps 40

Profiles `train_ps.py` in network namespaces, then runs it in rounds, each with one job an order:
none, TicTac's TIC and TAC, dltune's, a random one and TAC's reversed, and one each that only
computes or only receives. Every step is recorded op by op. Prints step times, their ratio to no
order in the same round, the efficiency E by each step's own times and by what the round's steps
took that only computed or only received, and how well E explains step times (TicTac, section 3.2).
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile

import msgspec
import numpy as np

from dltune.job import protocol
from dltune.job.launch import Job, Process
from dltune.job.protocol import Orders, machine_lines
from dltune.job.record import NANOSECOND, span
from dltune.profile.processes import sends
from dltune.schemas import profile as documents
from dltune.schemas.plan import Uniform
from dltune.schemas.profile import Profile, tensor
from dltune.simulate.overlap import partition
from dltune.stats import quantiles
from dltune.system import topology
from dltune.systems.transfers.decide import Cluster, by_chance, decide, weighed, workers
from dltune.systems.transfers.enforce import bounds
from dltune.systems.transfers.forecast import SimulatedCluster, worker
from dltune.systems.transfers.section import Receiver, Transfer, Transfers

TRAIN = Path(__file__).parents[1] / "examples" / "train_ps.py"
WARM_UP = 3
# small ones may come together in one message, whose order nobody sees
LARGE = 16 << 10
ORDERS = ("none", "tic", "tac", "improved", "random", "reverse")
PARTS = ("computing", "transfers")


@dataclass(frozen=True)
class Step:
    """`wall`: seconds by the session's own clock, `seconds` from the first op to the last, of the
    slowest worker; `waits`: the part of these for which the fastest waits. Of the first worker:
    `efficiency` by its own times, between `upper` and `lower` seconds, `arrivals`: its tensors as
    they came, `turned`: the share of neighbours among the large ones of one server that came in the
    other order than planned (None: there was none)."""

    order: str
    round: int
    wall: float
    seconds: float
    waits: float
    efficiency: float
    upper: float
    lower: float
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
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--cores", type=float, help="CPU time of so many for each task [all]")
    parser.add_argument("--window", type=int, help="KiB [as planned]")
    return parser.parse_args()


def main() -> None:
    settings = parsed()
    settings.results.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(TRAIN), "--batch", str(settings.batch)]
    command += ["--workers", str(settings.workers), "--servers", str(settings.servers)]
    command += ["--rate", settings.rate] if settings.rate else []
    command += ["--cores", str(settings.cores)] if settings.cores else []
    command += ["--inference"] if settings.inference else []
    intra, inter = map(int, settings.pools.split("x"))
    profile = profiled(command, settings.results / "profile.json", intra)
    for link in profile.links:
        print(f"{link.sender}: {link}", file=sys.stderr)
    sections = planned(profile, settings.window)
    steps: list[Step] = []
    parts: dict[tuple[str, int], float] = {}
    with open(settings.results / "steps.jsonl", "w") as file:
        for number, name in itertools.product(
            range(settings.rounds), (*settings.orders.split(","), *PARTS)
        ):
            print(f"round {number} {name}", file=sys.stderr)
            whole = [*command, "--steps", str(settings.steps)]
            if name in PARTS:
                walls, _ = ran([*whole, "--only", name], (), Uniform(intra, inter), ())
                parts[name, number] = statistics.median(walls[WARM_UP:])
                continue
            lines = () if name == "none" else ordering(sections[name])
            receivers = sections[name].receivers
            walls, told = ran(whole, lines, Uniform(intra, inter), receivers)
            for wall, each in itertools.islice(zip(walls, told, strict=False), WARM_UP, None):
                spans = [one[0] for one in each]
                waits = 1 - min(spans) / max(spans)
                steps.append(Step(name, number, wall, max(spans), waits, *each[0][1:]))
                file.write(json.dumps(asdict(steps[-1])) + "\n")
    print(f"window {sections['tac'].window >> 10} KiB", file=sys.stderr)
    report(steps, parts, simulated(profile, sections, parts))


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


def planned(profile: Profile, window: int | None) -> dict[str, Transfers]:
    """By order, what is sent."""
    changed = msgspec.structs.replace
    found = {name: decide(profile, name, Cluster()) for name in ORDERS[1:4]}
    if window:
        found = {name: changed(one, window=window << 10) for name, one in found.items()}

    def other(of: Callable[[tuple[Transfer, ...]], Sequence[Transfer]]) -> Transfers:
        receivers = (
            changed(one, transfers=tuple(of(one.transfers))) for one in found["tac"].receivers
        )
        return changed(found["tac"], receivers=tuple(receivers))

    return {
        **found,
        "none": found["tac"],
        "random": other(lambda all_: random.Random(1).sample(all_, len(all_))),
        "reverse": other(lambda all_: all_[::-1]),
    }


def ordering(section: Transfers) -> list[str]:
    """What the plugin is told."""
    sends = (
        f"send\t{receiver.task}\t{one.tensor}"
        for receiver in section.receivers
        for one in receiver.transfers
    )
    return [f"window\t{section.window}", *sends]


Told = tuple[float, float, float, float, tuple[str, ...], float | None]


def ran(
    command: Sequence[str], ordered: Sequence[str], pools: Uniform, receivers: Sequence[Receiver]
) -> tuple[list[float], list[tuple[Told, ...]]]:
    """One job: by step its seconds by the session's clock; and of each receiver's graph seconds, E,
    its bounds, arrivals and the share that was turned."""
    lines = list(ordered)
    graphs = {receiver.signature: receiver for receiver in receivers}
    if graphs:
        lines += Orders(1, targets=list(graphs), events=True).lines()

    def greet(_: Process) -> list[str]:
        return [*machine_lines(topology.local(), pools), *lines]

    told: dict[str, list[Told]] = {signature: [] for signature in graphs}
    known: dict[tuple[int, int], protocol.Graph] = {}
    with (
        TemporaryFile("w+") as out,
        Job(command, greet=greet, stdout=out.fileno(), stderr=subprocess.DEVNULL) as job,
    ):
        for event in job.events(1.0):
            if event is None or event.process is None:
                continue
            message, pid = event.message, event.process.pid
            if isinstance(message, protocol.Graph) and message.signature in graphs:
                known[pid, message.id] = message
            elif isinstance(message, protocol.Execution) and (pid, message.graph) in known:
                graph = known[pid, message.graph]
                told[graph.signature] += step(
                    message, graph, graphs[graph.signature], bool(ordered)
                )
        assert job.exit_code == 0, job.exit_code
        out.seek(0)
        walls = [float(line.split()[2]) for line in out if line.startswith("step ")]
        return walls, list(zip(*told.values(), strict=False))


def step(
    execution: protocol.Execution, graph: protocol.Graph, receiver: Receiver, ordered: bool
) -> Iterator[Told]:
    found = bounds(execution, graph, receiver)
    if found:
        came = arrived(execution, graph, [one.tensor for one in receiver.transfers])
        server = receiver.transfers[0].sender
        large = [
            one.tensor for one in receiver.transfers if one.sender == server and one.bytes >= LARGE
        ]
        yield (
            span(execution),
            found.efficiency(span(execution) / NANOSECOND),
            found.upper * NANOSECOND,
            found.lower * NANOSECOND,
            came,
            turned(came, large) if ordered else None,
        )


def arrived(
    execution: protocol.Execution, graph: protocol.Graph, names: Sequence[str]
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


def simulated(
    profile: Profile, sections: Mapping[str, Transfers], parts: Mapping[tuple[str, int], float]
) -> dict[str, float]:
    """By order, seconds of a step of the first worker in simulation: its ops take as long together
    as the steps that only computed, its transfers what the profile's link tells."""
    step, received = next(iter(workers(profile)))
    graph, channel, times = weighed(profile, step, received)
    part = partition(graph, channel, times)
    sent = {one.node: one for one in sends(step)}
    link = next(link for link in profile.links if link.bandwidth)
    server = {one.sender: channel[one.node] for one in received}
    over = [
        *(channel[n] for n in sorted(channel)),
        *(server[sent[n].receiver] for n in sorted(sent)),
    ]
    alone = [times[n] for n in sorted(channel)]
    alone += [link.each + sent[n].bytes / link.bandwidth for n in sorted(sent)]
    ops = np.array(times)
    ops[list(channel)] = 0.0
    ops *= middle(parts, "computing") / ops.sum()
    cluster = SimulatedCluster(
        worker(graph, ops.tolist(), channel, sent), 1, np.array(over, np.int32), np.array(alone)
    )
    place = {one.tensor: number for number, one in enumerate(received)}
    orders = {
        name: [place[one.tensor] for one in section.receivers[0].transfers]
        for name, section in sections.items()
    }
    orders["none"] = by_chance(part)
    return {name: cluster.ordered(order).seconds for name, order in orders.items()}


def middle(parts: Mapping[tuple[str, int], float], name: str) -> float:
    return statistics.median(seconds for (one, _), seconds in parts.items() if one == name)


def report(
    steps: Sequence[Step],
    parts: Mapping[tuple[str, int], float],
    predicted: Mapping[str, float],
) -> None:
    both = [middle(parts, name) for name in PARTS]
    print(f"only computing {both[0] * 1e3:.1f} ms, only transfers {both[1] * 1e3:.1f} ms; "
          f"S = {min(both) / max(both):.2f}\n")  # fmt: skip
    print("| order | steps | median ms | over none | simulated | E, own times | E, of the round "
          "| best / worst 5 % | fastest waits | orders | turned |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for order in dict.fromkeys(step.order for step in steps):
        mine = [step for step in steps if step.order == order]
        seconds = [step.seconds for step in mine]
        low, high = quantiles(seconds, (0.0, 0.95))
        ratios = sorted(paired(steps, order))
        turns = [step.turned for step in mine if step.turned is not None]
        print(
            f"| {order} | {len(mine)} | {statistics.median(seconds) * 1e3:.1f} "
            f"| {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) "
            f"| {predicted[order] / predicted['none']:.3f} "
            f"| {statistics.median(s.efficiency for s in mine):.3f} "
            f"| {statistics.median(of_rounds(mine, parts)):.3f} | {low / high:.3f} "
            f"| {statistics.median(s.waits for s in mine):.1%} | {len({s.arrivals for s in mine})} "
            f"| {f'{statistics.mean(turns):.1%}' if turns else ''} |"
        )
    by_order = {
        order: explained([step for step in steps if step.order == order])
        for order in dict.fromkeys(step.order for step in steps)
    }
    print(f"\nR² of step time on E: {explained(steps):.3f} over all steps, "
          f"{explained(steps, normalized=True):.3f} of parts of U; by order "
          + ", ".join(f"{order} {part:.3f}" for order, part in by_order.items()))  # fmt: skip


def of_rounds(steps: Sequence[Step], parts: Mapping[tuple[str, int], float]) -> Iterator[float]:
    """E by step, with the bounds of its round: what steps took that only computed, and only
    received."""
    for one in steps:
        both = [parts[name, one.round] for name in PARTS]
        yield (sum(both) - one.wall) / min(both)


def paired(steps: Sequence[Step], order: str) -> Iterator[float]:
    """Of each round its median step over that without an order."""
    for number in dict.fromkeys(step.round for step in steps):
        medians = [
            statistics.median(s.seconds for s in steps if (s.order, s.round) == (name, number))
            for name in (order, "none")
        ]
        yield medians[0] / medians[1]


def explained(steps: Sequence[Step], *, normalized: bool = False) -> float:
    """R² of the line through efficiencies and step times, or what part of its own U each took: that
    would be 1 if L were always the same part of U."""
    table = np.array(
        [(step.efficiency, step.seconds / (step.upper if normalized else 1)) for step in steps]
    )
    return float(np.corrcoef(table.T)[0, 1] ** 2)


if __name__ == "__main__":
    main()
