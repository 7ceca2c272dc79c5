"""Views of the section on parallelism, and of the documents on operators, times and topologies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from dltune.base.formatting import Bar, Key, Table, Tile, Tiles, columns, counted
from dltune.systems.parallelism.schemas.operators import Operator, Operators, OperatorTimes
from dltune.systems.parallelism.schemas.strategy import (
    ALL_CORES,
    Baseline,
    Divided,
    Parallelism,
)
from dltune.systems.parallelism.schemas.topology import Topology
from dltune.views import Context, Headline, Piece, Section, View

# parts on one page
MOST = 20_000


def tiles(section: Parallelism, alike: Sequence[tuple[str, Sequence[Divided]]]) -> Iterator[Tiles]:
    """Yield the strategy as FlexFlow's Figures 13 and 14 draw it: operators cut by degrees, a
    colour for each device. `alike`: groups of operators, each drawn once. As many as there is room
    for."""
    drawn, parts = [], 0
    for name, those in alike:
        parts += len(those[0].devices)
        if parts > MOST:
            break
        drawn.append(_tile(name, those))
    title = "divided operators: samples from top to bottom, other dimensions from left to right"
    if len(drawn) < len(alike):
        title += f"; first {len(drawn)} of {len(alike)}"
    yield Tiles(title, section.devices, drawn)


def _tile(name: str, those: Sequence[Divided]) -> Tile:
    one = those[0]
    down, across = _sides(one)
    steps = [math.prod((*one.degrees[at + 1 :], one.replicas)) for at in range(len(one.degrees))]

    def part(places: Sequence[tuple[int, int]]) -> Sequence[int]:
        first = sum(steps[dimension] * place for dimension, place in places)
        return one.devices[first : first + one.replicas]

    return Tile(
        name if len(those) == 1 else f"{name} x {len(those)}",
        divided(one),
        [[part((*y, *x)) for x in _places(one, across)] for y in _places(one, down)],
    )


def _sides(one: Divided) -> tuple[list[int], list[int]]:
    """The dimensions that are cut from top to bottom, and from left to right."""
    every = range(len(one.dimensions))
    down = [at for at in every if one.dimensions[at] == "sample"]
    return down, [at for at in every if at not in down]


def _places(one: Divided, dimensions: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    return itertools.product(*([(at, n) for n in range(one.degrees[at])] for at in dimensions))


def divided(one: Divided) -> str:
    """Return text such as "sample 4, channel 2, each part on 2 devices"."""
    parts = (f"{n} {d}" for n, d in zip(one.dimensions, one.degrees, strict=True) if d > 1)
    copies = f"each part on {one.replicas} devices" if one.replicas > 1 else ""
    return ", ".join(filter(None, (*parts, copies))) or "whole"


PLAN, FIRST = "planned", "data parallel"
# of the strategy, on stdout of the command that finds it
ROWS = 12

# FlexFlow's (Jia, Zaharia and Aiken, 2018, section 5), and what holds here
ASSUMPTIONS = (
    "A1: the time of an op does not depend on its values. Op times are {costs}.",
    "A2: a transfer takes its bytes divided by the bandwidth. The simulation adds the latency of "
    "each link on the route. On a route of several links, only the slowest is busy meanwhile.",
    "A3: a device runs its tasks first in, first out. If several tasks become ready at once, the "
    "simulation starts with the operator that comes first in the network.",
    "A4: the runtime has no overhead. This does not hold on real devices; in the simulation, the "
    "time of an op includes its launch and nothing else.",
)
_MEASURED = "taken from the profile; a part of an op takes its share of the time"
_MODELLED = (
    "modelled from the device's peaks (roofline) and the share of the peaks that its kind is "
    "assumed to reach"
)


def choice(section: Parallelism) -> str:
    """In a few words."""
    gap = f", gap to the bound {_gap(section)}" if section.bound is not None else ""
    return f"{_ms(section.seconds)} ms per step on {counted(len(section.devices), 'device')}{gap}"


def shown(section: Parallelism) -> View:
    return View(
        [
            Section("steps", "Simulated steps", [_compared(section), *_bounded(section)]),
            Section("strategy", "Strategy", [*tiles(section, alike(section)), _strategy(section)]),
            Section("assumptions", "Assumptions of the simulation", [*_assumptions(section)]),
        ],
        [Headline(1, _sentence(section))],
    )


def decision(section: Parallelism) -> View:
    source = f"Op times are {_costs(section)}."
    told = [source, *_bounded(section)]
    return View([Section("steps", "", [_compared(section), *told, _briefly(section)])])


def remarks(section: Parallelism) -> Iterator[str]:
    yield f"the search tried {section.proposals:,} changes in {section.searched:.1f} s"


def uncompared(section: Parallelism) -> Iterator[str]:
    """Yield what could not be compared on hosts whose devices are cores."""
    hosts = section.hosts or ("",) * len(section.devices)
    known = any(one.name == ALL_CORES for one in section.baselines)
    if section.consumer and len(set(hosts)) < len(section.devices) and not known:
        yield (
            "one process on all cores of a host was not compared: its times are not measured (pass "
            "a profile of the devices' machine, or --times with --measure)"
        )


def _costs(section: Parallelism) -> str:
    if times := section.times:
        return (
            f"measured by {times.framework} for {times.parts:,} parts of operators, on "
            f"{counted(times.cores, 'core')} each, once per type and shapes"
        )
    return _MEASURED if section.measured else _MODELLED


def _assumptions(section: Parallelism) -> Iterator[str]:
    for one in ASSUMPTIONS:
        yield one.format(costs=_costs(section))


def _sentence(section: Parallelism) -> str:
    text = (
        f"A step of {section.network} on {counted(len(section.devices), 'device')} "
        f"({section.topology}) takes {_ms(section.seconds)} ms in simulation"
    )
    first = next((one for one in section.baselines if one.name == FIRST), None)
    if first and section.seconds:
        text += f", {first.seconds / section.seconds:.2f}x as fast as data parallel"
    return f"{text}; {_best(section)}." if section.bound is not None else f"{text}."


def _gap(section: Parallelism) -> str:
    """The part of a step that another strategy might save."""
    left = 1 - (section.bound or 0.0) / section.seconds if section.seconds else 0.0
    return f"{max(0.0, left):.1%}"


def _best(section: Parallelism) -> str:
    if section.bound is not None and section.bound >= section.seconds:
        return f"no strategy in its search space takes less (proven by {section.proof})"
    return f"no strategy in its search space takes more than {_gap(section)} less"


def _bounded(section: Parallelism) -> Iterator[str]:
    if section.bound is not None and section.bound >= section.seconds:
        yield f"No strategy in this search space takes less (proven by {section.proof})."
    elif section.bound is not None:
        yield (
            f"No strategy in this search space takes less than {_ms(section.bound)} ms (proven by "
            f"{section.proof}): the gap to the best is at most {_gap(section)}."
        )


def _compared(section: Parallelism) -> Table:
    own = Baseline(PLAN, section.seconds, section.compute, section.bytes)
    every = [*section.baselines, own]
    most = max(one.seconds for one in every) or 1.0
    first = next((one.seconds for one in every if one.name == FIRST), None)
    rows = [
        (
            one.name + (f" (here the same as {one.same})" if one.same else ""),
            _ms(one.seconds),
            Bar(one.seconds / most, chosen=one is own),
            f"{first / one.seconds:.2f}" if first and one.seconds else "",
            f"{one.bytes / 1e6:,.1f}",
            _ms(one.compute),
        )
        for one in every
    ]
    heads = ("strategy", ">ms", "", ">speed-up", ">MB sent", ">op ms")
    title = f"simulated step of {_network(section)} on {section.topology}"
    return Table(title, columns(*heads), rows)


def _network(section: Parallelism) -> str:
    if section.batch is None:
        return section.network
    return f"{section.network} ({counted(section.batch, 'sample')})"


def _strategy(section: Parallelism) -> Table:
    rows = [
        (Key(name), str(len(those)), divided(those[0]), places(section, those[0]))
        for name, those in alike(section)
    ]
    return Table("strategy", columns("operators", ">count", "divided", "devices"), rows)


def _briefly(section: Parallelism) -> Table:
    """Return operators divided alike in one row, the most operators first."""
    found: dict[tuple[object, ...], list[Divided]] = {}
    for one in section.operators:
        found.setdefault((divided(one), one.devices), []).append(one)
    most = sorted(found.values(), key=len, reverse=True)
    rows = []
    for those in most[:ROWS]:
        names = dict.fromkeys(one.block or one.name for one in those)
        where = (divided(those[0]), places(section, those[0]))
        rows.append((*where, str(len(those)), Key(", ".join(names))))
    left = f", {ROWS} of {len(most)} groups (dltune show lists all)" if len(most) > ROWS else ""
    return Table(f"strategy{left}", columns("divided", "devices", ">count", "operators"), rows)


def alike(section: Parallelism) -> list[tuple[str, list[Divided]]]:
    """Operators of one block that are divided alike, in the order of the network."""
    found: dict[tuple[object, ...], list[Divided]] = {}
    for one in section.operators:
        key = (one.block or one.name, one.degrees, one.replicas, one.devices)
        found.setdefault(key, []).append(one)
    return [(str(key[0]), those) for key, those in found.items()]


def places(section: Parallelism, one: Divided) -> str:
    """Its devices by name, those that follow each other as from the first to the last."""
    used = sorted(set(one.devices))
    if len(used) == len(section.devices) > 2:
        return f"all {len(used)}"
    names = []
    for _, run in itertools.groupby(enumerate(used), key=lambda at: at[1] - at[0]):
        places = [place for _, place in run]
        first, last = section.devices[places[0]], section.devices[places[-1]]
        names += [first] if len(places) == 1 else [f"{first} to {last}"]
    return ", ".join(names)


def _ms(seconds: float) -> str:
    """Three digits at least."""
    return f"{seconds * 1e3:,.{max(0, _digits(seconds * 1e3))}f}"


def _digits(value: float) -> int:
    return next((digits for least, digits in ((100, 1), (1, 2)) if value >= least), 4)


DOCUMENT_ROWS = 500


def operators_view(graph: Operators, _: Context) -> View:
    """Return the view of a network as operators that can be divided."""
    heads = ("operator", "type", "output", "reads", "learns", ">Gflop forwards", ">backwards")
    rows = [_row(graph, one) for one in graph.operators]
    table = Table("operators", columns(*heads), rows, name="operators", most_on_page=DOCUMENT_ROWS)
    learned = sum(weights.bytes for weights in graph.weights)
    return View(
        title="Network",
        head=[
            ("network", graph.name),
            ("operators", f"{len(graph.operators):,}"),
            ("weights", f"{learned / 1e6:,.1f} MB"),
        ],
        sections=[Section("network", "Operators", [table])],
    )


def _row(graph: Operators, one: Operator) -> tuple[str | Key, ...]:
    learned = "" if one.weights is None else graph.weights[one.weights].name
    return (
        Key(one.name),
        one.type,
        ", ".join(f"{dimension.name} {dimension.size}" for dimension in one.dimensions),
        ", ".join(graph.operators[read.operator].name for read in one.inputs),
        learned,
        f"{one.flops / 1e9:.3f}",
        f"{one.backward_flops / 1e9:.3f}",
    )


def times_view(found: OperatorTimes, _: Context) -> View:
    """Return the view of the times of parts of operators on a device."""
    device = f"{found.kind}, {found.cores} of its cores each for {found.devices} devices"
    return View(
        title="Times of operators",
        head=[("device", device), ("measured by", found.framework)],
        sections=[Section("times", "Parts of operators", [_parts(found)])],
    )


def _parts(found: OperatorTimes) -> Table:
    rows = [
        (
            one.type,
            ", ".join("x".join(map(str, shape)) for shape in one.inputs),
            "x".join(map(str, one.output)),
            f"{one.forward * 1e3:.3f}",
            f"{one.backward * 1e3:.3f}",
        )
        for one in found.parts
    ]
    heads = ("type", "reads", "gives out", ">ms forwards", ">ms backwards")
    return Table("parts", columns(*heads), rows, name="parts", most_on_page=DOCUMENT_ROWS)


def topology_view(found: Topology, _: Context) -> View:
    """Return the view of devices and the links between them."""
    sources = [*(f"{kind.name}: {kind.source}" for kind in found.kinds if kind.source)]
    sources += [found.source] if found.source else []
    body: list[Piece] = [_devices(found), _links(found), *sources]
    return View(
        title="Topology",
        head=[("topology", found.name), ("devices", f"{len(found.devices):,}")],
        sections=[Section("topology", "Devices and links", body)],
    )


def _devices(found: Topology) -> Table:
    kinds = {kind.name: kind for kind in found.kinds}
    rows = []
    for device in found.devices:
        kind = kinds[device.kind]
        rows.append(
            (
                *(device.name, device.host, kind.name),
                *(f"{kind.flops / 1e12:.3f}", f"{kind.bandwidth / 1e9:.1f}", f"{kind.share:.2f}"),
                f"{kind.overhead * 1e6:.1f}",
            )
        )
    heads = ("device", "host", "kind", ">Tflop/s", ">GB/s of memory", ">share", ">us an op")
    return Table("devices", columns(*heads), rows, name="devices", most_on_page=DOCUMENT_ROWS)


def _links(found: Topology) -> Table:
    rows = [
        (
            *link.ends,
            f"{link.bandwidth / 1e9:.3f}",
            f"{link.latency * 1e6:.1f}",
            "both ways together" if link.shared else "each way",
        )
        for link in found.links
    ]
    heads = columns("between", "and", ">GB/s", ">us", "")
    return Table("links", heads, rows, name="links", most_on_page=DOCUMENT_ROWS)
