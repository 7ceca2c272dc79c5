"""Findings, the same in every document that holds some: cause, evidence, cost and fix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from dltune.base.faults import (
    AMOUNT,
    SHARE,
    at_least,
    each,
    empty,
)
from dltune.schemas.sections.settings import Choice

# measured in this job; computed from measurements of this job; known from other jobs
Confidence = Literal["measured", "modelled", "rule"]


class Gain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expected saving of a fix, as a share of the steps' wall time.

    `low`, `high`: lowest and highest expected saving.
    """

    low: float
    high: float


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause of slowness, with its evidence, its cost and its fix.

    `cause`: name of the rule, as the reference lists it.
    `title`: the problem in one line.
    `evidence`: measured values.
    `fix`: a command, a setting or a change of the script; null if nothing has to be done.
    `seconds`: cost per step, in seconds; null if unknown, or not per step.
    `share`: cost as a share of the job's time; null if unknown.
    `gain`: expected gain of the fix.
    `confidence`: how the gain is known: `measured` in this job, `modelled` from measurements of
      this job, or a `rule` known from other jobs.
    `apply`: settings that a plan of `dltune diagnose --plan` applies.
    `try_next`: settings that `dltune tune` tries first.
    """

    cause: str = ""  # set by the rule
    title: str
    evidence: str
    fix: str | None = None
    seconds: float | None = None
    share: float | None = None
    gain: Gain | None = None
    confidence: Confidence = "rule"
    apply: tuple[Choice, ...] = ()
    try_next: tuple[str, ...] = ()


def faults(here: str, findings: tuple[Finding, ...]) -> Iterator[str]:
    """All that cannot be true, one sentence each, the field's path first."""
    for at, finding in each(here, findings, "cause"):
        yield from empty(at, finding, "cause", "title")
        yield from AMOUNT.of(at, finding, "seconds")
        yield from SHARE.of(at, finding, "share")
        yield from SHARE.of(f"{at}.gain", finding.gain, "low", "high")
        if finding.gain is not None:
            low = finding.gain.low
            yield from at_least(low, "its low").of(f"{at}.gain", finding.gain, "high")


def of_another_kind(document: dict[str, Any], *, title: str, fix: str) -> dict[str, Any]:
    """A document as it was before findings were of one kind: these fields had other names, and no
    rule was named."""
    names = {title: "title", fix: "fix"}
    found = document.get("findings")
    if not isinstance(found, list):
        return document  # and refused for that
    return {**document, "findings": [_renamed(one, names) for one in found]}


def _renamed(one: object, names: dict[str, str]) -> object:
    if not isinstance(one, dict):
        return one
    return {"cause": "not-named", **{names.get(field, field): one[field] for field in one}}
