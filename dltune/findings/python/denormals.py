"""Denormal numbers, with which many CPUs compute many times as slowly."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.findings.evidence import Evidence, is_significant, most_often, script_share, shares_of
from dltune.findings.rule import rule
from dltune.frameworks.capabilities import framework
from dltune.schemas.diagnosis import Confidence, Finding, Gain, Graphs
from dltune.schemas.profile import Ratio
from dltune.schemas.settings import Choice

# samples, and the share of them with denormals; a few denormals occur in many programs
MIN_SAMPLES, MIN_SHARE = 4, 0.8


@rule(
    "denormals",
    "python",
    summary="The job computes with denormal numbers (below 1.2e-38), for which many CPUs need many "
    "times as long.",
    fix="Treat them as zero (torch.set_flush_denormal(True)), or add a tiny number (1e-20) where "
    "values decay.",
)
def denormals(evidence: Evidence) -> Iterator[Finding]:
    """Find denormal numbers in the main thread. PyTorch runs ops in this thread: the cost is the
    measured saving if denormals count as zero, or else at most the job's whole Python time.
    TensorFlow's own threads flush denormals: the cost is the Python time between the steps."""
    graphs = graphs_with_denormals(evidence)
    if graphs is None:
        return
    samples = (
        f"in {graphs.denormal} of {graphs.denormal_looks} samples, the main thread had used "
        "denormal numbers (below 1.2e-38 in float32), which slow the CPU down"
    )
    if are_in_ops(evidence):
        yield from (
            _measured(graphs.flushed, samples) if graphs.flushed else _estimated(evidence, samples)
        )
    elif script := script_share(evidence):
        share, details = script[1], samples + most_often(script[0])
        yield Finding(
            title=f"Python computes with denormal numbers between the steps for {share:.0%} of "
            "the time",
            evidence=details,
            fix="set such small values to zero, or add a tiny number (1e-20) where they decay",
            share=share,
            gain=Gain(0.0, share),
        )


def are_in_ops(evidence: Evidence) -> bool:
    """Return whether ops of the main thread used denormal numbers all the time."""
    is_flushed = framework(evidence.framework).treats_denormals_as_zero
    return not is_flushed and graphs_with_denormals(evidence) is not None


def graphs_with_denormals(evidence: Evidence) -> Graphs | None:
    """Return the graphs if the main thread used denormal numbers all the time."""
    graphs = evidence.graphs
    if graphs is None or graphs.denormal_looks < MIN_SAMPLES:
        return None
    return graphs if graphs.denormal >= MIN_SHARE * graphs.denormal_looks else None


def _measured(flushed: Ratio, samples: str) -> Iterator[Finding]:
    """Find the measured cost; none if its confidence interval includes zero."""
    if flushed.high < 1:
        gain = Gain(1 - flushed.high, 1 - flushed.low)
        details = (
            f"{samples}; if they count as zero, a step takes {flushed.median:.2f} times as long"
        )
        yield _make_finding("", details, 1 - flushed.median, gain, "measured")


def _estimated(evidence: Evidence, samples: str) -> Iterator[Finding]:
    shares = shares_of(evidence, "eager", "python")
    share = min(1.0, sum(each.share for each in shares))
    if is_significant(evidence, share):
        details = samples + most_often(max(shares, key=lambda each: each.share))
        when = f" for up to {share:.0%} of the time"
        yield _make_finding(when, details, share, Gain(0.0, share), "rule")


def _make_finding(
    when: str, details: str, share: float, gain: Gain, confidence: Confidence
) -> Finding:
    return Finding(
        title=f"PyTorch's ops compute with denormal numbers{when}",
        evidence=details,
        fix="call torch.set_flush_denormal(True) before the first op: denormal numbers then "
        "count as zero",
        share=share,
        gain=gain,
        confidence=confidence,
        apply=(Choice("denormals", "flushed"),),
        try_next=("denormals",),
    )
