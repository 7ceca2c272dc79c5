"""The section on memory, and what came of it, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dltune.base.formatting import Bar, Course, Key, Series, Table, columns, counted
from dltune.systems.memory.section import Memory
from dltune.views import Headline, Piece, Section, View

if TYPE_CHECKING:
    from dltune.systems.memory.deepest import Deepest

MIB = 2**20
NOTABLE = 0.01  # of the planned amount


@dataclass(frozen=True)
class Kept:
    """The effect of a run in one process. `again`: so many results its graph computes again.
    `peak`: the most bytes that the allocator held in one of `steps` (None: none was recorded), of
    which it held `live` as that step began (None: not planned for); `at`: the node that ended when
    it held the most, where steps were recorded op by op."""

    pid: int
    again: int
    offloaded: int
    steps: int
    peak: int | None
    live: int | None
    at: str


@dataclass(frozen=True)
class MemoryOutcome:
    """`left`: the parts that were not in force, and why, sentences."""

    processes: tuple[Kept, ...]
    left: tuple[str, ...] = ()


def intent(section: Memory) -> Iterator[str]:
    """Yield the effects that would be enforced."""
    if section.compiled is not None:
        yield f"{choice(section)}, at most about {mib(section.live + section.peak)}"
        return
    what = "the calls" if section.calls else "graph"
    yield (
        f"recompute {counted(section.again, 'result')} of {what} {section.signature}"
        f"{_offloading(section)}, at most {mib(section.live + section.peak)}"
    )


def sentences(outcome: MemoryOutcome, section: Memory) -> Iterator[str]:
    """Yield the effects of the section."""
    for one in outcome.processes:
        did = f"recomputes {one.again} of {counted(section.again, 'result')}"
        if compiler := _compiler(section):
            did = compiler if one.again else "the compiler's budget is unchanged"
        text = f"process {one.pid}: {did}"
        if section.offloaded:
            text += f", offloads {one.offloaded} of {counted(len(section.offloaded), 'tensor')}"
        if one.peak is not None:
            planned = section.live + section.peak
            text += (
                f", peak {mib(one.peak)} in {counted(one.steps, 'step')} (planned {mib(planned)}"
            )
            if one.live and (more := one.live - section.live) > NOTABLE * planned:
                text += (
                    f"; when that step began, {mib(more)} more than in the profile were already "
                    "allocated, for example for prefetched batches"
                )
            text += ")"
        yield text
        if one.peak is not None and section.budget is not None and one.peak > section.budget:
            where = f", at {one.at}" if one.at else ""
            yield (
                f"the budget of {mib(section.budget)} was exceeded by "
                f"{(one.peak - section.budget) / 2**10:,.0f} KiB{where}"
            )
    yield from outcome.left


def choice(section: Memory) -> str:
    """In a few words."""
    if compiler := _compiler(section):
        return compiler
    return (
        f"{mib(section.live + section.peak)}, {counted(section.again, 'result')} recomputed"
        f"{_offloading(section)}"
    )


def _compiler(section: Memory) -> str:
    """Return the compiler's part; empty: no compiler is given a budget."""
    if section.compiled is None:
        return ""
    return f"PyTorch compiles with activation_memory_budget = {section.compiled:g}"


def _offloading(section: Memory) -> str:
    if not section.offloaded:
        return ""
    total = mib(sum(one.bytes for one in section.offloaded))
    return f", {counted(len(section.offloaded), 'tensor')} ({total}) offloaded"


def shown(section: Memory) -> View:
    body: list[Piece] = [_table(section)]
    if section.compiled is None:  # else no op is known
        body += [_course(section), _again(section)]
    if section.offloaded:
        body.append(_offloaded(section))
    return View([Section("memory", "Memory of a step", body)], [Headline(1, _sentence(section))])


def decision(section: Memory, depths: Deepest | None = None) -> View:
    course = [_course(section)] if section.compiled is None else []
    more = [_depths(depths)] if depths else []
    return View([Section("memory", "", [_table(section), *course, *more])])


def mib(bytes: int) -> str:
    return f"{bytes / MIB:.1f} MiB"


def _sentence(section: Memory) -> str:
    added = section.longer / section.seconds if section.seconds else 0.0
    return (
        f"The peak memory of a step is {mib(section.live + section.peak)} as planned and "
        f"{mib(section.live + section.before)} without the plan; the plan adds {added:.1%} to the "
        "time of the step's ops."
    )


def _table(section: Memory) -> Table:
    most = section.live + max(section.before, section.peak, 1)
    rows = []
    for name, peak, added in (
        ("without plan", section.before, 0.0),
        ("planned", section.peak, section.longer),
    ):
        whole = section.live + peak
        rows.append(
            (
                name,
                f"{section.live / MIB:.1f}",
                f"{peak / MIB:.1f}",
                f"{whole / MIB:.1f}",
                Bar(whole / most, chosen=name == "planned"),
                f"{added * 1e3:.1f}",
                f"{added / section.seconds:.1%}" if section.seconds else "",
            )
        )
    heads = (
        *("step", ">persistent MiB", ">step MiB", ">total MiB", ""),
        *(">added ms", ">of op time"),
    )
    return Table("predicted peak of the framework's allocator", columns(*heads), rows)


def _course(section: Memory) -> Course:
    def series(name: str, seconds: float, course: tuple[int, ...]) -> Series:
        return Series(name, seconds, [(section.live + bytes) / MIB for bytes in course])

    return Course(
        "memory during a step, over its op time",
        [
            series("without plan", section.seconds, section.course_before),
            series("planned", section.seconds + section.added, section.course),
        ],
        "MiB",
    )


def _depths(found: Deepest) -> Table:
    rows = [
        (
            name,
            str(one.blocks),
            f"{one.blocks - found.blocks:+d}",
            f"{one.live / MIB:.1f}",
            f"{one.peak / MIB:.1f}",
            f"{(one.live + one.peak) / MIB:.1f}",
            f"{one.added * 1e3:.1f}",
            f"{one.added / one.seconds:.1%}" if one.seconds else "",
        )
        for name, one in (("without plan", found.unplanned), ("planned", found.planned))
        if one is not None
    ]
    heads = (
        "deepest that fits",
        ">blocks",
        ">added blocks",
        ">persistent MiB",
        ">step MiB",
        ">total MiB",
        ">added ms",
        ">of op time",
    )
    title = f"{counted(found.blocks, 'identical block')} in the job, such as {found.like}"
    return Table(title, columns(*heads), rows)


def _again(section: Memory) -> Table:
    """Return the nodes that run several times, the most often first."""
    times = Counter(section.order)
    rows = [
        (Key(section.nodes[place]), str(count - 1))
        for place, count in times.most_common()
        if count > 1
    ]
    return Table("recomputed results", columns("node", ">times"), rows)


def _offloaded(section: Memory) -> Table:
    """Return the tensors that leave memory, the largest first, and between which ops each is
    away."""
    rows = [
        (
            Key(section.nodes[one.place]),
            f"{one.bytes / MIB:.1f}",
            section.nodes[section.order[one.freed]],
            section.nodes[section.order[one.back]],
        )
        for one in sorted(section.offloaded, key=lambda one: -one.bytes)
    ]
    return Table("offloaded tensors", columns("node", ">MiB", "freed before", "back before"), rows)
