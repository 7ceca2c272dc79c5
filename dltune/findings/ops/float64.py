"""Products in double precision."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.below_roof import below_roof
from dltune.analysis.figures import Analysis, Figures
from dltune.analysis.keys import Key, parse
from dltune.analysis.parts import portion, unrecorded, working
from dltune.documents.finding import Finding, Gain
from dltune.findings.rule import rule
from dltune.findings.seen import Seen
from dltune.findings.thread_settings import advised

SHARE = 0.1  # of the op time
# vector registers hold half as many of them, and memory moves twice the bytes
SLOWER = 2.0


@rule(
    "float64",
    "ops",
    summary="Ops compute in double precision (float64).",
    fix="Convert data to float32 where they enter the job (astype('float32')), and keep the "
    "framework's default type at float32.",
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: half of what ops of double precision take."""
    if seen.profile is None:
        return
    doubles, heaviest = portion(seen.profile.profile, _double)
    if doubles < SHARE:
        return
    share = doubles * working(seen.profile.profile) * (1 - 1 / SLOWER)
    below = (one for figures in seen.profile.ops for one in _why(figures, seen.profile))
    names = advised(seen.framework)
    yield Finding(
        title=f"ops in double precision (float64) take {doubles:.0%} of the op time",
        evidence=f"most of this time is in {heaviest}; NumPy arrays are float64 by default, and "
        f"{names.array_function} keeps that type{next(below, '')}",
        fix="if float32 is accurate enough, convert data where they enter the job "
        f"(astype('float32')) and keep {names.default_type} at float32; dltune itself does not "
        "change the precision",
        seconds=share * unrecorded(seen.profile.profile),
        share=share,
        gain=Gain(0.0, share),
        confidence="rule",
    )


def _double(key: Key) -> bool:
    return any(tensor.dtype == "double" for tensor in key.inputs)


def _why(figures: Figures, analysis: Analysis) -> Iterator[str]:
    """What else holds back an op in double precision, ready to follow a sentence."""
    key = parse(figures.op)
    if key and _double(key):
        for found in below_roof(figures, analysis):
            yield f"; {figures.op.type}: {found.sentence}"
