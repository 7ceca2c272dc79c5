"""Values that others have measured or predicted: a number in a JSON document of a checkout."""

from __future__ import annotations

from pathlib import Path

import msgspec

from dltune.base import documents
from dltune.base.documents import AMOUNT, refuse
from dltune.base.errors import UsageError
from dltune.base.formatting import visible
from dltune.gate.config import Limit
from dltune.plan import plan as plan_document
from dltune.schemas.plan import Threads

REPORTS = {"io_amplification": "I/O report", "background_share": "Horovod report"}


def value(limit: Limit, folder: Path) -> float:
    """The limit's value in `folder`. Raises UsageError when its document is not there, is not what
    it should be, or has no such number."""
    assert limit.document is not None
    path = folder / limit.document
    if limit.metric == "plan_step_time":
        return _predicted(path)
    try:
        found: object = msgspec.json.decode(documents.content(path))
    except documents.NOT_JSON as error:
        raise UsageError(
            f"{path} is not JSON: {error}", remedy="correct `document` in the configuration"
        ) from None
    assert limit.field is not None
    for part in limit.field.split("."):
        if isinstance(found, dict) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise UsageError(
                f"{path} has no field {visible(limit.field)!r}: {part!r} is missing",
                remedy="correct `field` in the configuration",
            )
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise UsageError(
            f"{path}: {visible(limit.field)} is not a number",
            remedy="correct `field` in the configuration",
        )
    refuse(str(path), AMOUNT.faults(visible(limit.field), found))
    return float(found)


def _predicted(path: Path) -> float:
    """Seconds of a step that the plan in a file predicts for what it chose. Raises UsageError."""
    plan = plan_document.load(path)
    section = plan.of(Threads)
    if section is None:
        raise UsageError(
            f"{path} predicts no step time: it has no threads section",
            remedy="use a plan made by `dltune plan`",
        )
    return {p.setting: p.seconds for p in section.predictions}[section.strategy]


def why_missing(limit: Limit) -> str | None:
    """Why there is nothing to read; None when a document is named."""
    if limit.document is not None:
        return None
    if limit.metric == "plan_step_time":
        return "no plan is configured (document = 'plan.json')"
    return f"no {REPORTS[limit.metric]} is configured (document = ..., field = ...)"
