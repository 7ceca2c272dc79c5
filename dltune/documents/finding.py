"""What costs a job its time, and what to do about it: the same in every document that has some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from dltune.documents.faults import AMOUNT, SHARE, at_least, each, empty
from dltune.documents.sections.settings import Choice

# the figure was measured in this job; follows from what was measured; is known from other jobs
Sure = Literal["measured", "modelled", "rule"]


class Gain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shares of the steps' wall time that may be saved: expected at least, and at most."""

    low: float
    high: float


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`cause` is the name of the rule that found it, in `dltune/findings`.

    `claim`: what is wrong, or right; `evidence`: the figures it rests on; `cure`: what to do, a
    command, a setting or a line of the script (None: nothing is to be done). `seconds`: what it
    costs of a step, `share` of the job's time (None: not known, or not per step). `gain`: what the
    cure is expected to bring, and `sure` how that is known. `choices`: settings of the cure that
    dltune applies by itself; `tries`: names of those that `dltune tune` tries first.
    """

    cause: str
    claim: str
    evidence: str
    cure: str | None = None
    seconds: float | None = None
    share: float | None = None
    gain: Gain | None = None
    sure: Sure = "rule"
    choices: tuple[Choice, ...] = ()
    tries: tuple[str, ...] = ()


def faults(here: str, findings: tuple[Finding, ...]) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    for at, finding in each(here, findings, "cause"):
        yield from empty(at, finding, "cause", "claim")
        yield from AMOUNT.of(at, finding, "seconds")
        yield from SHARE.of(at, finding, "share")
        yield from SHARE.of(f"{at}.gain", finding.gain, "low", "high")
        if finding.gain is not None:
            low = finding.gain.low
            yield from at_least(low, "its low").of(f"{at}.gain", finding.gain, "high")


def of_another_kind(document: dict[str, Any], *, claim: str, cure: str) -> dict[str, Any]:
    """A document as it was before findings were of one kind: these fields had other names, and no
    rule was named."""
    names = {claim: "claim", cure: "cure"}
    found = document.get("findings")
    if not isinstance(found, list):
        return document  # and refused for that
    return {**document, "findings": [_renamed(one, names) for one in found]}


def _renamed(one: object, names: dict[str, str]) -> object:
    if not isinstance(one, dict):
        return one
    return {"cause": "not-named", **{names.get(field, field): one[field] for field in one}}
