"""Many small ops: what the executor needs between them, and what calling them takes."""

from __future__ import annotations

from collections.abc import Iterator

from dltune.analysis.parts import op_seconds, part, recording, taken, unrecorded, wall, working
from dltune.analysis.why import SHORT_SECONDS
from dltune.documents.finding import Finding, Gain
from dltune.findings.rule import rule
from dltune.findings.seen import Seen

# of the wall time; to remove a twentieth is about what can be seen in a noisy step
SHARE = 0.05


@rule(
    "small-ops",
    "ops",
    summary="The step consists of many small ops, and the time between them is lost.",
    fix="Use fewer and larger ops (fusion, larger batches); XLA can merge ops (`dltune tune --only "
    "xla` measures it).",
    frameworks=("tensorflow",),
)
def find(seen: Seen) -> Iterator[Finding]:
    """Its cost: what is lost between ops. The gain at most: that, and the short ops themselves."""
    if seen.profile is None:
        return
    profile = seen.profile.profile
    seconds = [
        taken(step, index, profile.ops)
        for step in profile.steps
        for index, node in enumerate(step.nodes)
        if node.op is not None and node.repeats > 0
    ]
    short = [each for each in seconds if each < SHORT_SECONDS]
    whole = op_seconds(profile)
    plain = unrecorded(profile)
    lost = (part(profile, "executor") * wall(profile) - recording(profile)) / plain if plain else 0
    within = sum(short) / whole * working(profile) if whole > 0 else 0.0
    if lost + within < SHARE:
        return
    yield Finding(
        title=f"{len(short):,} of {len(seconds):,} ops per step are shorter than "
        f"{SHORT_SECONDS * 1e6:.0f} us; together they take {within:.0%} of the wall time",
        evidence=f"no op runs for {lost:.0%} of the wall time, although the step does",
        fix="use fewer and larger ops (fusion, larger batches); XLA can merge ops, but its "
        "kernels for large ops are often slower on CPUs: `dltune tune --only xla` measures which "
        "is faster",
        seconds=lost * plain,
        share=lost,
        gain=Gain(0.0, min(1.0, lost + within)),
        confidence="modelled",
        try_next=("jit_compile", "xla"),
    )
