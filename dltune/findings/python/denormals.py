"""Computing with denormal numbers, which take many CPUs many times as long."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Finding, Gain
from dltune.documents.sections.settings import Choice
from dltune.findings.looked import own_share, where
from dltune.findings.seen import Seen

# looks, and the share of them that found such numbers: a few underflow in many programs
LEAST_LOOKS, MOST = 4, 0.8


def find(seen: Seen) -> Iterator[Finding]:
    """Its cost, at most: the job's own Python between the steps; of PyTorch, whose ops the main
    thread runs too, all of its Python. TensorFlow's threads flush such numbers."""
    found = own_share(seen)
    if found is None or not everywhere(seen):
        return
    graphs = seen.observation.graphs if seen.observation else None
    assert graphs is not None
    python, share = found
    in_ops = seen.framework == "pytorch"
    yield Finding(
        "denormals",
        f"PyTorch's ops compute with denormal numbers, in {share:.0%} of the time at most"
        if in_ops
        else f"Python computes with denormal numbers between the steps, in {share:.0%} of the time",
        f"in {graphs.denormal} of {graphs.denormal_looks} looks the main thread had used numbers "
        f"below 1.2e-38 (float32), which take the CPU longer; most often it was{where(python)}",
        "torch.set_flush_denormal(True) before the first op takes them for zero"
        if in_ops
        else "set to zero what is so small, or add a tiny number (1e-20) where it decays",
        share=share,
        gain=Gain(0.0, share),
        sure="rule",
        choices=(Choice("denormals", "flushed"),) if in_ops else (),
        tries=("denormals",) if in_ops else (),
    )


def everywhere(seen: Seen) -> bool:
    """Whether the main thread used denormal numbers all the time."""
    graphs = seen.observation.graphs if seen.observation else None
    return (
        graphs is not None
        and graphs.denormal_looks >= LEAST_LOOKS
        and graphs.denormal >= MOST * graphs.denormal_looks
    )
