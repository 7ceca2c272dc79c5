"""Roofs as a machine might have them, round numbers."""

from __future__ import annotations

import msgspec

from dltune.schemas.machine import MEMORY, ROOFS_SCHEMA, Bandwidth, Cache, Peak, Roofs

# float64 GFLOP/s of both cores by instructions; twice that in float32
PEAKS = {"SSE2": 64, "AVX": 128, "AVX2 and FMA": 128, "AVX-512": 256}
WIDTHS = {"SSE2": 2, "AVX": 4, "AVX2 and FMA": 8, "AVX-512": 16}
LEVELS = {"L1": (1000, 100_000), "L2": (500, 2_000_000), "L3": (200, 32_000_000), MEMORY: (64, 0)}


def roofs(**changes: object) -> Roofs:
    """Of two cores that reach twice what one does."""
    peaks = [
        Peak(dtype, name, WIDTHS[name] * more, cores, rate * 1e9 * more * cores / 2, 1e9, 10)
        for dtype, more in (("float64", 1), ("float32", 2))
        for name, rate in PEAKS.items()
        for cores in (1, 2)
    ]
    streams = [
        Bandwidth(level, way, max(size, 1), cores, rate * 1e9 * cores / 2 * part, 1e9, 10)
        for level, (rate, size) in LEVELS.items()
        for way, part in (("read", 1), ("triad", 0.5))
        for cores in (1, 2)
    ]
    whole = Roofs(
        schema=ROOFS_SCHEMA,
        created="2026-01-01T00:00:00+00:00",
        fingerprint="0123456789abcdef",
        cpu="A CPU",
        cores=2,
        frequency=4e9,
        peaks=tuple(peaks),
        bandwidths=tuple(streams),
        caches=tuple(Cache(name, size) for name, (_, size) in LEVELS.items() if size),
    )
    return msgspec.structs.replace(whole, **changes)
