"""Memory that is short while data is read, so that the page cache is taken back."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.seen import Seen
from dltune.words import share

# of the time
PRESSED = 0.05


def find(seen: Seen) -> Iterator[Finding]:
    for pressure in seen.io.watch.pressure if seen.io and seen.io.watch else ():
        if pressure.resource == "memory" and pressure.some >= PRESSED:
            yield Finding(
                "short-memory",
                f"memory is short: the {pressure.of} waited for it "
                f"{share(pressure.some)} of the time",
                f"pressure on memory: some {share(pressure.some)}"
                + (f", all {share(pressure.full)}" if pressure.full is not None else ""),
                "the page cache that reading needs is taken back: smaller shuffle buffers, "
                "fewer processes",
                sure="measured",
            )
