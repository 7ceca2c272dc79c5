"""The section on parallelism for people."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from dltune.base.formatting import Bar, Key, Table, columns, counted
from dltune.systems.parallelism.pictures import divided, tiles
from dltune.systems.parallelism.schemas.strategy import Baseline, Divided, Parallelism
from dltune.views import Headline, Section, View

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
            one.name,
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
