"""Computing with denormal numbers, which take many CPUs many times as long."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.documents.finding import Confidence, Finding, Gain
from dltune.documents.observation import Graphs
from dltune.documents.profile import Ratio
from dltune.documents.sections.settings import Choice
from dltune.findings.looked import at_any, costs, often
from dltune.findings.python.own_lines import own_share
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.frameworks.capabilities import framework

# looks, and the share of them that found such numbers: a few underflow in many programs
LEAST_LOOKS, MOST = 4, 0.8


@rule(
    "denormals",
    "python",
    summary="The job computes with denormal numbers (below 1.2e-38), for which many CPUs need many "
    "times as long.",
    fix="Treat them as zero (torch.set_flush_denormal(True)), or add a tiny number (1e-20) where "
    "values decay.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Of PyTorch, whose ops the main thread runs, its cost is what a step loses where they are
    taken for zero, or, where that was not tried, all of the job's Python at most. Of TensorFlow,
    whose threads flush such numbers, it is the Python between the steps."""
    graphs = everywhere(seen)
    if graphs is None:
        return
    looks = (
        f"in {graphs.denormal} of {graphs.denormal_looks} samples, the main thread had used "
        "denormal numbers (below 1.2e-38 in float32), which slow the CPU down"
    )
    if in_ops(seen):
        yield from _tried(graphs.flushed, looks) if graphs.flushed else _untried(seen, looks)
    elif python := own_share(seen):
        share, evidence = python[1], looks + often(python[0])
        yield Finding(
            title=f"Python computes with denormal numbers between the steps for {share:.0%} of "
            "the time",
            evidence=evidence,
            fix="set such small values to zero, or add a tiny number (1e-20) where they decay",
            share=share,
            gain=Gain(0.0, share),
        )


def in_ops(seen: Seen) -> bool:
    """Whether ops of the main thread used denormal numbers all the time."""
    flushed = framework(seen.framework).treats_denormals_as_zero
    return not flushed and everywhere(seen) is not None


def everywhere(seen: Seen) -> Graphs | None:
    """What was seen of graphs, where the main thread used denormal numbers all the time."""
    graphs = seen.observation.graphs if seen.observation else None
    if graphs is None or graphs.denormal_looks < LEAST_LOOKS:
        return None
    return graphs if graphs.denormal >= MOST * graphs.denormal_looks else None


def _tried(flushed: Ratio, looks: str) -> Iterator[Finding]:
    """Nothing where it may bring nothing."""
    if flushed.high < 1:
        gain = Gain(1 - flushed.high, 1 - flushed.low)
        evidence = (
            f"{looks}; if they count as zero, a step takes {flushed.median:.2f} times as long"
        )
        yield _of_ops("", evidence, 1 - flushed.median, gain, "measured")


def _untried(seen: Seen, looks: str) -> Iterator[Finding]:
    at = at_any(seen, "eager", "python")
    share = min(1.0, sum(one.share for one in at))
    if costs(seen, share):
        evidence = looks + often(max(at, key=lambda one: one.share))
        when = f" for up to {share:.0%} of the time"
        yield _of_ops(when, evidence, share, Gain(0.0, share), "rule")


def _of_ops(when: str, evidence: str, share: float, gain: Gain, sure: Confidence) -> Finding:
    return Finding(
        title=f"PyTorch's ops compute with denormal numbers{when}",
        evidence=evidence,
        fix="call torch.set_flush_denormal(True) before the first op: denormal numbers then "
        "count as zero",
        share=share,
        gain=gain,
        confidence=sure,
        apply=(Choice("denormals", "flushed"),),
        try_next=("denormals",),
    )
