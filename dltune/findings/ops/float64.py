"""Ops in double precision."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.keys import Key, parse
from dltune.analysis.op_causes import below_roof
from dltune.analysis.roofline import Analysis, Figures
from dltune.analysis.step_parts import portion, unrecorded, working
from dltune.findings.evidence import Evidence
from dltune.findings.rule import rule
from dltune.findings.thread_settings import advised
from dltune.schemas.diagnosis import Finding, Gain

SHARE = 0.1  # of the op time
# vector registers hold half as many numbers, and memory moves twice as many bytes
SLOWER = 2.0


@rule(
    "float64",
    "ops",
    summary="Ops compute in double precision (float64).",
    fix="Convert data to float32 where they enter the job (astype('float32')), and keep the "
    "framework's default type at float32.",
)
def find(evidence: Evidence) -> Iterator[Finding]:
    """Find ops in double precision. The cost is half of their time."""
    if evidence.profile is None:
        return
    doubles, heaviest = portion(evidence.profile.profile, _is_double)
    if doubles < SHARE:
        return
    share = doubles * working(evidence.profile.profile) * (1 - 1 / SLOWER)
    limits = (
        text for figures in evidence.profile.ops for text in _limits(figures, evidence.profile)
    )
    names = advised(evidence.framework)
    yield Finding(
        title=f"ops in double precision (float64) take {doubles:.0%} of the op time",
        evidence=f"most of this time is in {heaviest}; NumPy arrays are float64 by default, and "
        f"{names.array_function} keeps that type{next(limits, '')}",
        fix="if float32 is accurate enough, convert data where they enter the job "
        f"(astype('float32')) and keep {names.default_type} at float32; dltune itself does not "
        "change the precision",
        seconds=share * unrecorded(evidence.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="rule",
    )


def _is_double(key: Key) -> bool:
    return any(tensor.dtype == "double" for tensor in key.inputs)


def _limits(figures: Figures, analysis: Analysis) -> Iterator[str]:
    """Describe what else limits ops in double precision, as texts that can follow a sentence."""
    key = parse(figures.op)
    if key and _is_double(key):
        for limit in below_roof(figures, analysis):
            yield f"; {figures.op.type}: {limit.sentence}"
