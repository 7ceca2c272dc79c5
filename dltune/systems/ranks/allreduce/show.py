"""The section on Horovod, and what came of it, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dltune.base.formatting import Table, columns, counted
from dltune.schemas.machine import Machine
from dltune.schemas.profile import Profile
from dltune.systems.ranks.allreduce.calls import Call
from dltune.systems.ranks.allreduce.rank_outcome import (
    RankOutcome,
    cpus,
    settings,
    sleeps,
)
from dltune.systems.ranks.allreduce.section import AllreducePlan, pieces
from dltune.views import Headline, Section, View


def shown(section: AllreducePlan) -> View:
    """Return the predicted step of each method, and the decisions."""
    title = f"{section.ranks} ranks over {section.controller}"
    methods = Section("methods", f"Horovod: {title}", [predictions(section), *section.reasons])
    bins = sum(len(order.bins) for order in section.orders or ())
    decided = [f"gradients in {counted(bins, 'bin')}"] if bins else []
    decided += ["cores for each rank and its background thread"] if section.cores else []
    decided += ["a background thread that sleeps while it waits"] if section.sleeps else []
    sentence = f"Planned for {title}: {', '.join(decided) or 'Horovod unchanged'}."
    return View([methods], [Headline(1, sentence)])


def predictions(section: AllreducePlan, planned: str = "") -> Table:
    """Return a row per method. `planned`: the method of the section; if it is unknown, the fastest
    methods come first after the job without a plan."""
    original = section.predictions[0].seconds if section.predictions else 0.0
    methods = list(section.predictions[1:])
    if not planned:
        methods.sort(key=lambda prediction: prediction.seconds)
    rows = [
        (
            found.method,
            f"{found.seconds * 1e3:.1f}",
            f"{original / found.seconds:.2f}" if found.seconds else "",
            f"{found.background:.1%}",
            "planned" if found.method == planned else "",
        )
        for found in (*section.predictions[:1], *methods)
    ]
    heads = ("method", ">step ms", ">speed-up", ">background CPU, of a core", "")
    return Table("predicted step of the job by method", columns(*heads), rows)


def bins(section: AllreducePlan, profile: Profile, calls: Sequence[Call]) -> list[str]:
    """Each bin's tensors by name, and when the profiled step had them."""
    lines = []
    for order in section.orders or ():
        call = next(c for c in calls if tuple(g.shape for g in c.gradients) == order.shapes)
        nodes = profile.steps[call.step].nodes
        lines.append(
            f"{call.scope}: {len(call.gradients)} gradients in {counted(len(order.bins), 'bin')}"
        )
        for number, bin_ in enumerate(order.bins):
            part = bin_.elements and f", elements {bin_.elements[0]} to {bin_.elements[1] - 1} of"
            lines.append(f"  bin {number}: {bin_.bytes} bytes{part or ''}")
            for place in bin_.tensors:
                gradient = call.gradients[place]
                start = nodes[gradient.node].start
                there = "" if start is None else f", ready after {start * 1e3:.1f} ms"
                shape = ",".join(map(str, gradient.shape))
                lines.append(f"    {place}: {gradient.dtype}[{shape}] {gradient.name}{there}")
    return lines


def intent(section: AllreducePlan, machine: Machine) -> list[str]:
    """Return the parts to be enforced, a sentence each."""
    told = [f"for {section.ranks} ranks over {section.controller}, {section.local} on this node"]
    for rank, cores in enumerate(section.cores or ()):
        parts = [
            f"{what} {cpus(machine, getattr(cores, part))}"
            for part, what in (
                ("background", "background thread on CPU"),
                ("helpers", "its helpers on"),
                ("compute", "ops on"),
                ("input", "tf.data on"),
            )
        ]
        told.append(f"local rank {rank}: {', '.join(parts)}")
    if section.threads:
        told.append(
            f"intra-op {section.threads.intra}, inter-op {section.threads.inter} threads in a rank"
        )
    told += [
        f"{len(order.shapes)} gradients are reduced in {counted(len(order.bins), 'bin')} of "
        f"{', '.join(str(bin_.bytes) for bin_ in order.bins)} bytes"
        + "".join(f", gradient {g} in {n} pieces" for g, n in pieces(order.bins).items())
        for order in section.orders or ()
    ]
    told += [f"{name}={value}" for name, value in settings(section).items()]
    told += sleeps(section).values()
    return told


def sentences(outcome: RankOutcome) -> Iterator[str]:
    """Yield sentences on the outcome of the section in one rank."""
    yield from (f"rank {outcome.rank}: {sentence}" for sentence in outcome.enforced)
    yield from (f"rank {outcome.rank}: not enforced: {sentence}" for sentence in outcome.left)
