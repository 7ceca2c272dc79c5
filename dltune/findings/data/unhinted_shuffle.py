"""What hints bring to a reader of shuffled records."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding
from dltune.findings.data.exact_offsets import WORTH
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.words import rate


@rule(
    "unhinted-shuffle",
    "data",
    summary="Hints make shuffled reading of this file faster.",
    fix="Give hints (posix_fadvise WILLNEED) from the sampler's order (dltune plan io).",
    order=6,
)
def find(seen: Seen) -> Iterator[Finding]:
    shuffled = seen.io.experiment.shuffled if seen.io and seen.io.experiment else ()
    mapped = {(r.advised, r.ahead > 0): r for r in shuffled if r.method == "mmap"}
    if not {(False, False), (True, False), (True, True)} <= mapped.keys():
        return
    normal, random, hinted = mapped[False, False], mapped[True, False], mapped[True, True]
    better = max((normal, random), key=lambda r: r.throughput.median)
    gain = hinted.throughput.median / max(1.0, better.throughput.median)
    if gain >= WORTH:
        yield Finding(
            title=f"shuffled records are read {gain:.1f} times as fast with hints for the next "
            "records",
            evidence=f"{rate(hinted.throughput.median)} with hints {hinted.ahead} records ahead, "
            f"{rate(normal.throughput.median)} with read-ahead and "
            f"{rate(random.throughput.median)} without",
            fix="give hints (posix_fadvise WILLNEED) from the sampler's order and the index "
            "(dltune plan io)",
            confidence="measured",
        )
