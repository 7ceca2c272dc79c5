"""Roofs as tables, with the arithmetic beside: ports x width x frequency."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.base.tables import Cell, Table, columns
from dltune.schemas.roofs import Bandwidth, Peak, Roofs


def tables(roofs: Roofs) -> Iterator[Table]:
    """Peaks and bandwidths, on one core and on all."""
    heads = ("type", "instructions", ">1 core", f">{roofs.cores} cores", ">spread", "check")
    peaks = [one for one in roofs.peaks if one.cores == 1]
    yield Table(
        "peak arithmetic rate, 10^9 operations per second",
        columns(*heads),
        [_peak(roofs, one) for one in peaks],
    )
    heads = ("level", "access", ">1 core", f">{roofs.cores} cores", ">spread", "data per core")
    streams = [one for one in roofs.bandwidths if one.cores == 1]
    yield Table("peak bandwidth, GB/s", columns(*heads), [_stream(roofs, one) for one in streams])


def _peak(roofs: Roofs, one: Peak) -> tuple[Cell, ...]:
    every = next(
        (
            found
            for found in roofs.peaks
            if (found.dtype, found.instructions) == (one.dtype, one.instructions)
            and found.cores > 1
        ),
        None,
    )
    beside = arithmetic(one, roofs.frequency)
    return (one.dtype, one.instructions, *_rates(one, every), beside)


def _stream(roofs: Roofs, one: Bandwidth) -> tuple[Cell, ...]:
    every = next(
        (
            found
            for found in roofs.bandwidths
            if (found.level, found.way) == (one.level, one.way) and found.cores > 1
        ),
        None,
    )
    parts = f", {every.bytes / every.cores / 2**10:,.0f} with all cores" if every else ""
    return (one.level, one.way, *_rates(one, every), f"{one.bytes / 2**10:,.0f} KiB{parts}")


def remarks(roofs: Roofs) -> Iterator[str]:
    """What is to be known beside the tables."""
    yield (
        f"clock frequency under load: {roofs.frequency / 1e9:.2f} GHz. check: measured "
        "instructions per cycle; then ports x numbers per instruction x frequency."
    )
    if sentence := unsettled(roofs):
        yield sentence
    yield from roofs.notes


def unsettled(roofs: Roofs) -> str | None:
    """That other work was in the way; None when every rate was reached again and again."""
    if not roofs.unsettled:
        return None
    count = len(roofs.peaks) + len(roofs.bandwidths) + 1
    return (
        f"{roofs.unsettled} of the {count} measured peaks could be too low, because other work "
        "disturbed the measurement; run `dltune doctor --roofs` to measure them again"
    )


def arithmetic(peak: Peak, frequency: float) -> str:
    """What the ports come to at this frequency, beside a peak on one core."""
    if peak.instructions == "AMX":
        return f"{peak.rate / frequency / peak.width * 16:.2f} tile products in 16 cycles"
    measured = peak.rate / frequency / peak.width
    ports = max(1, round(measured))
    whole = ports * peak.width * frequency
    return (
        f"{measured:.2f} per cycle; {ports} x {peak.width} x {frequency / 1e9:.2f} GHz = "
        f"{whole / 1e9:.1f}"
    )


def _rates(one: Peak | Bandwidth, every: Peak | Bandwidth | None) -> tuple[str, str, str]:
    """On one core, on all (where there are several), and how far the median turn stayed below."""
    most = every or one
    rate = f"{every.rate / 1e9:.1f}" if every else ""
    return f"{one.rate / 1e9:.1f}", rate, f"-{1 - most.median / most.rate:.0%}"
