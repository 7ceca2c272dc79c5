"""Reports of a profile's ops, as tables, lines and JSON: their times and the derived figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import msgspec

from dltune.analysis.op_causes import why
from dltune.analysis.roofline import Analysis, Ceiling, Figures, Rates, Roofline
from dltune.base.formatting import Cell, Key, Table, columns
from dltune.schemas.profile import (
    Link,
    Op,
    Profile,
    Ratio,
    Step,
    Total,
    is_clock,
)

# thread counts shown of an op's curve
CURVE = 4
# share of op time: less is not worth a row next to ops that were measured one at a time
WORTH = 0.01

# head, figure, how it is written
_COLUMNS: tuple[tuple[str, Callable[[Rates], float | None], Callable[[float], str]], ...] = (
    (">GFLOP/s", lambda r: r.flop_rate, lambda v: f"{v / 1e9:.3g}"),
    (">flop/B", lambda r: r.intensity, lambda v: f"{v:.3g}"),
    (">moves GB/s", lambda r: r.byte_rate, lambda v: f"{v / 1e9:.3g}"),
    (">IPC", lambda r: r.ipc, lambda v: f"{v:.2f}"),
    (">LLC miss", lambda r: r.miss_rate, lambda v: f"{v:.1%}"),
    (">LLC GB/s", lambda r: r.memory_rate, lambda v: f"{v / 1e9:.3g}"),
    (">faults", lambda r: r.faults, lambda v: f"{v:.3g}" if v < 1000 else f"{v:.0f}"),
    (">switches", lambda r: r.switches, lambda v: f"{v:.2g}" if v < 100 else f"{v:.0f}"),
    (">CPU", lambda r: r.cpu_share, lambda v: f"{v:.0%}"),
)


def times(ops: Sequence[Figures]) -> Table:
    """Each op's times by threads. Every one of `ops` has a best case."""
    heads = (
        *("op", ">runs", ">share", ">1 thread ms", "+>as found ms", "best threads", "+>best ms"),
        *(">gain", "ms by thread count"),
    )
    return Table("ops by time with one thread", columns(*heads), [_times(one) for one in ops], 2)


def own_times(ops: Sequence[Op], count: int, least: float = 0.0) -> Table:
    """Times in the job of ops that were not measured one at a time, such as ops that torch.compile
    has compiled; without ops that take less than a share of `least`."""
    whole = sum((op.own or 0.0) * op.count for op in ops)
    taken = [op for op in ops if not op.times and (op.own or 0.0) * op.count >= least * whole]
    taken.sort(key=lambda op: -(op.own or 0.0) * op.count)
    rows = [
        (
            Key(op.key),
            str(op.count),
            f"{op.own * op.count / whole:.1%}",
            f"{op.own * 1e3:.3f}",
        )
        for op in taken[:count]
        if op.own
    ]
    return Table("ops by time as found", columns("op", ">runs", ">share", ">as found ms"), rows, 2)


def both_passes(profile: Profile, count: int) -> Table:
    """Time of the steps in all runs of each op of PyTorch's that is differentiated, and in the
    ops of the backward pass that compute its gradient, in the execution that was sampled."""
    spent: dict[str, list[float]] = {}  # by key: runs, seconds of either pass
    whole = 0.0
    for step in profile.steps:
        whole += sum(node.seconds for node in step.nodes)
        backward: dict[int, float] = defaultdict(float)
        for node in step.nodes:
            for forward in node.control[1:]:
                backward[forward] += node.seconds
        for place, took in backward.items():
            differentiated = step.nodes[place]
            if differentiated.op is not None:
                of = spent.setdefault(profile.ops[differentiated.op].key, [0, 0.0, 0.0])
                of[0] += 1
                of[1] += differentiated.seconds
                of[2] += took
    ordered = sorted(spent.items(), key=lambda one: -one[1][1] - one[1][2])
    if whole <= 0:  # the profile does not say when ops ran
        ordered = []
    rows = [
        (
            Key(key),
            f"{runs:.0f}",
            f"{(forward + backward) / whole:.1%}",
            f"{forward * 1e3:.3f}",
            f"{backward * 1e3:.3f}",
        )
        for key, (runs, forward, backward) in ordered[:count]
        if forward + backward >= WORTH * whole
    ]
    heads = ("op", ">runs", ">share", ">forward ms", ">backward ms")
    return Table(
        "forward and backward pass of each op, all runs in a step", columns(*heads), rows, 2
    )


def _times(figures: Figures) -> tuple[Cell, ...]:
    assert figures.best is not None
    best = figures.best.time
    one = best.median if figures.one is None else figures.one
    return (
        Key(figures.op.key),
        str(figures.op.count),
        f"{figures.share:.1%}",
        f"{one * 1e3:.3f}",
        "" if figures.op.own is None else f"{figures.op.own * 1e3:.3f}",
        f"{best.threads} {best.placement}",
        f"{best.median * 1e3:.3f}",
        f"{one / best.median:.2f}x" if best.median > 0 else "",
        _curve(figures.op),
    )


def _curve(op: Op) -> str:
    """Milliseconds at thread counts in their better placement: `CURVE` counts at most."""
    best: dict[int, float] = {}
    for time in op.times:
        best[time.threads] = min(time.median, best.get(time.threads, time.median))
    counts = sorted(best)
    if len(counts) > CURVE:
        last = len(counts) - 1
        counts = [counts[round(i * last / (CURVE - 1))] for i in range(CURVE)]
    return "  ".join(f"{count}: {best[count] * 1e3:.3g}" for count in counts)


def rates(ops: Sequence[Figures]) -> Table:
    """Each op's rates at its best case, a run's; only columns that some op has a figure for."""
    heads = ["op", "+>share"]
    rows: list[list[Cell]] = [[Key(of.op.key), f"{of.share:.1%}"] for of in ops]
    for head, read, write in _COLUMNS:
        values = [read(of.best.rates) if of.best else None for of in ops]
        if any(value is not None for value in values):
            heads.append(head)
            for row, value in zip(rows, values, strict=True):
                row.append("" if value is None else write(value))
    if any(of.position for of in ops):
        heads.append(">of roofline")
        for row, of in zip(rows, ops, strict=True):
            row.append(f"{of.position.share:.0%} {of.position.under}" if of.position else "")
    return Table(
        "rates of these ops at their best thread count", columns(*heads), rows, sorted_by=1
    )


def scaled(ops: Sequence[Figures]) -> str | None:
    """That counts were scaled up, as more events were asked for than the CPU counts at once."""
    running = [count.running for of in ops if of.best for count in of.best.time.counts]
    if min(running, default=1.0) >= 1.0:
        return None
    return (
        f"counts are extrapolated: at least one event was counted for only {min(running):.0%} of "
        "the time"
    )


# name, ceiling, unit
_Roof: TypeAlias = tuple[str, Ceiling | None, str]


def ceilings(roof: Roofline) -> Iterator[str]:
    """Yield the ceilings that `of roof` refers to, a line each."""
    computing: list[_Roof] = [
        (f"compute {dtype}", of, "GFLOP/s") for dtype, of in roof.dtypes.items()
    ]
    levels: list[_Roof] = [(level.name, level.ceiling, "GB/s") for level in roof.levels]
    found = (
        *(computing or [("compute", roof.compute, "GFLOP/s")]),
        ("memory", roof.memory, "GB/s"),
        *(levels or [("cache", roof.cache, "GB/s")]),
    )
    for name, ceiling, unit in found:
        if ceiling:
            source = "reached by " if ceiling.measured else ""
            rate = ceiling.rate / 1e9
            written = f"{rate:.3g}" if rate < 1000 else f"{rate:,.0f}"
            yield f"peak, {name}: {written} {unit} ({source}{ceiling.source})"


def parts(step: Step) -> str:
    """Each part of the wall time with its share; a part of no time is omitted."""
    whole = sum(part.seconds for part in step.parts) or 1.0
    told = [
        f"{part.name} {part.seconds * 1e3:.3g} ms ({part.seconds / whole:.0%})"
        for part in step.parts
        if part.seconds > 0
    ]
    return "of which " + ", ".join(told)


def link(found: Link) -> str:
    """Description of the transfers over it, after "tensors from TASK"."""
    if not found.transfers:
        return "were not observed"
    each = f"{found.each * 1e6:.0f} us"
    explained = f"(this explains {found.fit:.0%} of their arrival times)"
    if found.bandwidth is None and not found.each:
        return "arrived together: the link does not limit them"
    if found.bandwidth is None:
        return f"arrived one after the other, {each} each regardless of size {explained}"
    rate = f"{found.bandwidth / 1e6:,.1f} MB/s"
    return (
        f"arrived at {rate} plus {each} each, starting {found.delay * 1e3:.1f} ms into a step "
        f"{explained}"
    )


def totals(found: Sequence[Total]) -> Table:
    """`accounted`: ops, gaps and other threads over the kernel's figure for the process."""
    heads = ("event", ">in ops", ">between ops", ">other threads", ">process", ">explained")
    rows = []
    for total in found:
        values = (total.ops, total.gaps, total.others, total.process)
        clock = is_clock(total.event)
        cells = [f"{value:.3f} s" if clock else f"{value:.0f}" for value in values]
        counted = total.ops + total.gaps + total.others
        share = f"{counted / total.process:.1%}" if total.process > 0 else ""
        rows.append((total.event, *cells, share))
    return Table("events by place", columns(*heads), rows)


def overhead(ratio: Ratio) -> str:
    return (
        f"overhead of recording ops: a step takes {ratio.median:.3f}x as long (95 % confidence "
        f"interval {ratio.low:.3f} to {ratio.high:.3f}, {ratio.pairs} pairs)"
    )


def report(analysis: Analysis, top: int | None = None) -> dict[str, Any]:
    """Return the derived figures of a profile as plain data, for `--json`: figures per op (the
    `top` ones that take most time; None: all), ceilings, sentences.

    Names and units are those of the classes they are from: `Rates`, `Position`, `Ceiling`.
    """
    return {
        "roofline": asdict(analysis.roofline),
        "steps": [
            {
                "signature": step.signature,
                "parts": {part.name: part.seconds for part in step.parts},
            }
            for step in analysis.profile.steps
        ],
        "ops": [_op(figures, analysis) for figures in analysis.ops[:top]],
    }


def _op(figures: Figures, analysis: Analysis) -> dict[str, Any]:
    cause, sentence = why(figures, analysis)
    best = figures.best
    return {
        "key": figures.op.key,
        "count": figures.op.count,
        "serial": figures.serial,
        "share": figures.share,
        "operations": figures.operations,
        "moved": figures.moved,
        "best": {"threads": best.time.threads, "placement": best.time.placement} if best else None,
        "position": asdict(figures.position) if figures.position else None,
        "cause": cause,
        "why": sentence,
        "cases": [
            {
                "threads": case.time.threads,
                "placement": case.time.placement,
                "seconds": case.time.median,
                **asdict(case.rates),
                "counts": [msgspec.structs.asdict(count) for count in case.time.counts],
            }
            for case in figures.cases
        ],
    }
